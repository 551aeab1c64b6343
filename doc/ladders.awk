# ladders.awk - doc/ladders.md from a bench run: what each kernel of a ladder brought.
#
#     for op in $(run-ablation --list | sed -n '/^run-ablation/q; s/ .*//p'); do
#         run-ablation --list $op
#     done >list
#     run-ablation --tsv --goals report experiments/bench_kernels.ini >bench.tsv
#     awk -f doc/ladders.awk -v machine='One NVIDIA H200 (...)' list bench.tsv >doc/ladders.md
#
# The table of kernels has the best first; a ladder is climbed from its other end.  A kernel that
# declined or failed has no row.

function speed(row) {
    if (bound[row] == "tensor" || bound[row] == "fp32")
        return sprintf("%.1f TFLOP/s", flops[row] / 1e12)
    return sprintf("%.0f GB/s", bytes[row] / 1e9)
}

function micro(seconds) {
    return seconds < 1e-3 ? sprintf("%.4g", seconds * 1e6) : sprintf("%.0f", seconds * 1e6)
}

# One pass of a kernel: time, speed, the part of what binds, and the time of the rung below over it.
function cells(key, below, row, gain) {
    row = key
    if (!(row in time))
        return "| | | | "
    gain = (below in time) ? sprintf("%.2f", time[below] / time[row]) : ""
    return sprintf("| %s | %s | %.0f %% %s | %s ", micro(time[row]), speed(row), 100 * part[row],
                   bound[row], gain)
}

function table(trial, n, i, kernel, below, both) {
    n = kernels[trial]
    both = trial in backward
    printf "\n### %s\n\n", title[trial]
    printf "| kernel | forward, us | | of its bound | x |%s\n", both ? " backward, us | | of its bound | x |" : ""
    printf "|---|---|---|---|---|%s\n", both ? "---|---|---|---|" : ""
    below = ""
    for (i = n; i >= 1; i--) {
        kernel = order[trial, i]
        printf "| `%s` %s%s|\n", kernel, cells(trial SUBSEP kernel SUBSEP "forward", below SUBSEP "forward"),
            both ? cells(trial SUBSEP kernel SUBSEP "backward", below SUBSEP "backward") : ""
        if (kernel != "cublas")
            below = trial SUBSEP kernel
    }
}

# ---- run-ablation --list: the kernels' ideas ----

FNR == NR && /^[a-z]/ { op = $1; next }
FNR == NR && /^    gpu(32|_bf16) / {
    kernel = $2
    if ($1 == "gpu_bf16" && !listed_bf16[op]++) # it has them all
        n_ideas[op] = 0
    ideas[op, ++n_ideas[op]] = kernel
    sub(/^ *[^ ]+ +[^ ]+ +/, "")
    idea[op, kernel] = $0
    next
}
FNR == NR { next }

# ---- the bench ----

FNR == 1 {
    FS = "\t"
    $0 = $0
    for (i = 1; i <= NF; i++)
        column[$i] = i
    next
}
/^#/ { next }
$column["verdict"] == "pass" && $column["backend"] ~ /^gpu/ {
    trial = $1
    kernel = $column["kernel"]
    row = trial SUBSEP kernel SUBSEP $column["pass"]
    if (!(trial in kernels)) {
        trials[++n_trials] = trial
        line = $column["line"]
        sub(/ seed=.*/, "", line)
        split(line, word, " ")
        op_of[trial] = word[1]
        title[trial] = line
    }
    if (!((trial, kernel) in there)) {
        there[trial, kernel] = 1
        order[trial, ++kernels[trial]] = kernel
    }
    if ($column["pass"] == "backward")
        backward[trial] = 1
    time[row] = $column["median"]
    flops[row] = $column["flops_per_s"]
    bytes[row] = $column["bytes_per_s"]
    bound[row] = $column["bound_by"]
    part[row] = $column[bound[row]]
}

END {
    print "# Ladders: what each idea brought\n"
    print "Made by `doc/ladders.awk` from runs of `experiments/bench_kernels.ini`; not written by hand."
    printf "\n%s.\nGPU time by graph replay, L2 flushed, median of 20, parity green in the same process.\n", machine
    print "\"x\" is the time of the rung above it in the table over its own; bytes are those of the definition, each"
    print "tensor once; the bound is the ceiling, measured at the start of the run, that allows the least speed."
    for (i = 1; i <= n_trials; i++) {
        op = op_of[trials[i]]
        if (op != last) {
            printf "\n## %s\n\n", op
            for (k = n_ideas[op]; k >= 1; k--)
                printf "- `%s`: %s\n", ideas[op, k], idea[op, ideas[op, k]]
        }
        last = op
        table(trials[i])
    }
}
