# sweep.awk - the slowest sizes of a sweep, by operation, type and pass: how far the default kernel, the
# first that takes a case, is from cuBLAS where it is among the kernels, and else from the ceiling that
# binds it: memory is the speed of a copy.
#
#     run-ablation --tsv --goals report experiments/sweep_sizes.ini >sweep.tsv
#     awk -f doc/sweep.awk sweep.tsv
BEGIN { FS = "\t" }

/^#/ { next }
$1 == "trial" {
    for (i = 1; i <= NF; i++)
        at[$i] = i
    next
}
$at["verdict"] != "pass" { next }

# The rows of a trial come one after the other, its default kernel first.
{
    key = $at["trial"] SUBSEP $at["pass"]
    if ($at["kernel"] == "cublas")
        cublas[key] = $at["median"]
    else if (!(key in median)) {
        median[key] = $at["median"]
        ceiling[key] = $at["bound_by"]
        reached[key] = $at[$at["bound_by"]]
        kernel[key] = $at["kernel"]
        line[key] = $at["line"]
        backend[key] = $at["backend"]
        order[++n] = key
    }
}

# "rows=1 columns=2" of a line, without what is the default of all.
function size_of(text) {
    sub(/^[^ ]* /, "", text)
    gsub(/ (transpose_[ab]=no|alpha=1|beta=0|bias=no|act=none|scale=1|fill=normal|eps=1e-06|dtype=[a-z0-9]*|seed=[0-9]*|input=normal|kind=inclusive|over=rows|batch=1|ignore_index=-100|label_smoothing=0)/, "", text)
    sub(/^batch=1 /, "", text)
    return text
}

END {
    print "| operation | type | pass | worst | of | default kernel | size |"
    print "|---|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++) {
        key = order[i]
        split(key, part, SUBSEP)
        op = line[key]
        sub(/ .*/, "", op)
        of = key in cublas ? "cuBLAS" : ceiling[key] == "memory" ? "copy" : ceiling[key]
        ratio = of == "cuBLAS" ? cublas[key] / median[key] : reached[key]
        type = backend[key] == "gpu32" ? "fp32" : "bf16"
        row = op SUBSEP type SUBSEP part[2]
        if (ratio == "")
            continue
        if (!(row in worst))
            rows[++m] = row
        if (!(row in worst) || ratio < worst[row]) {
            worst[row] = ratio
            text[row] = "| " op " | " type " | " part[2] " | " sprintf("%.0f %%", 100 * ratio) " | " of " | " \
                kernel[key] " | " size_of(line[key]) " |"
        }
    }
    for (i = 1; i <= m; i++)
        print text[rows[i]]
}
