#!/bin/sh
# What run-ablation prints of a run: the names of checks, colour, tables and their widths, records of
# --tsv, times beside an earlier run's, goals, and judgement by a sample.  TAP on stdout.
# $srcdir and $PYTHON come from the Makefile.
. "${srcdir:-.}/tests/runner_tap.sh"
wrong_tanh
# In float as well: then oracle and yardstick agree, and a kernel does not.
echo 'float tanhf(float x) { return x / (x < 0 ? 1 - x : 1 + x); }' | cat tanh.c - >tanhs.c
$CC -shared -fPIC -o tanhs.so tanhs.c || exit 1

# ---- the names of checks ----

named='e74_cell steps=4 batch=2 n_state=3 repeats=0'
does "--verbose" 0 "^      checks    ref64 plain: differences [1-9][0-9]*$" "$run" --verbose -t "$named"
sed -n 's/^ .*  \([0-9]*\) ok$/\1/p' out >rows
sed -n 's/^      checks .*: //p' out | awk '{n = 0; for (i = 2; i <= NF; i += 2) n += $i; print n}' >sums
[ -s rows ] && cmp rows sums >>err
ok $? "its numbers add up to those of the rows"
sed -n 's/^      checks    \([^ ]*\) [^:]*: /\1 /p' out | tr -d , |
    awk '{for (i = 2; i < NF; i += 2) print $1, $i, $(i + 1)}' | sort >names
"$run" --tsv -t "$named" >records 2>err
awk -F'\t' '/^[0-9]/ {n[$2 " " $4]++} END {for (k in n) print k, n[k]}' records | sort | cmp names - >>err
ok $? "it names each check that --tsv has"
[ `grep -c '^ref32 ' names` -ge 7 ]
ok $? "all seven properties"
for check in `cut -d' ' -f2 names | sort -u` parity; do
    grep -q "^| .$check. |" "$srcdir/doc/experiments.md"
    ok $? "doc/experiments.md says what $check means"
done
"$run" -t "$named" >out 2>err && ! grep -q '^      checks' out
ok $? "without --verbose there are no such lines"

# ---- colour ----

# on_terminal COMMAND: its output is a terminal, whose contents go to the file out.
on_terminal() {
    script -qc "$1" /dev/null </dev/null >out 2>err
}
coloured() {
    grep -q "`printf '\033'`\[[0-9;]*m" out
}
green=`printf '\033[32mok\033[0m'` red=`printf '\033[31mFAILED\033[0m'`
yellow=`printf '\033[33m'`
words="'$named'"
long='e74 steps=96 batch=2 n_state=48 dim=48 repeats=1 proj=no_z,full save=none'
# Gradients of 1e-12 of logits near 1e4: most of a difference of them is rounding.
unsure='softmax rows=2 columns=47 scale=1e-06 fill=outliers seed=169795 checks=differences repeats=0'
if on_terminal "test -t 1 && echo a terminal" && grep -q "a terminal" out; then
    on_terminal "TERM=xterm NO_COLOR= '$run' -t $words" && grep -qF " $green" out
    ok $? "on a terminal ok is green"
    preload="LD_LIBRARY_PATH='$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}' LD_PRELOAD='tanh.so${LD_PRELOAD:+:$LD_PRELOAD}' ASAN_OPTIONS='$ASAN_OPTIONS:verify_asan_link_order=0'"
    on_terminal "TERM=xterm NO_COLOR= $preload '$run' -t $words"
    grep -qF "  $red " out
    ok $? "FAILED is red"
    on_terminal "TERM=xterm NO_COLOR= '$run' -t '$unsure'"
    grep -qF ": ${yellow}cannot be judged" out && grep -qF "${yellow}not judged" out
    ok $? "what cannot be judged is yellow"
    for how in "TERM=xterm NO_COLOR=1" "TERM=dumb NO_COLOR=" "TERM= NO_COLOR="; do
        on_terminal "$how '$run' -t $words" && grep -q '[0-9] ok' out && ! coloured
        ok $? "no colour with $how"
    done
    on_terminal "TERM=xterm NO_COLOR= '$run' --tsv -t $words" && grep -q 'pass' out && ! coloured
    ok $? "nor with --tsv"
    on_terminal "TERM=xterm NO_COLOR= '$run' -t $words | cat" && grep -q '[0-9] ok' out && ! coloured
    ok $? "nor into a pipe"
    on_terminal "OMP_NUM_THREADS=1 '$run' -t '$long'"
    tr '\r' '\n' <out | sed -n 's/.*trial \([12]\) of 2, \([0-9]*\) %: .*/\1 \2/p' >moved
    [ `sort -u moved | wc -l` -ge 12 ] && sort -c -s -n -k1,1 -k2,2 moved 2>err
    ok $? "the line on a terminal moves within a trial, forwards"
    tr '\r' '\n' <out | grep -q 'of 2, [0-9]* %: [a-z0-9]*, [0-9]* s left$'
    ok $? "and says how long that will still take"
    tr '\r' '\n' <out | sed -n 's/.* of 2, [0-9]* %: \([a-z0-9]*\).*/\1/p' | uniq | head -12 | tr '\n' ' ' >steps
    grep -q '^inputs ref64 ref32 differences .*roundings .*properties .*writing' steps || { cp steps err; false; }
    ok $? "and names the steps"
else
    for name in "on a terminal ok is green" "FAILED is red" "what cannot be judged is yellow" \
        "no colour with NO_COLOR" "no colour with TERM=dumb" "no colour without TERM" "nor with --tsv" \
        "nor into a pipe" "the line on a terminal moves" "says how long" "names the steps"; do
        skip "$name" "no script of util-linux"
    done
fi

"$run" -t "$long" >out 2>err
[ ! -s err ] && ! grep -q "[`printf '\001'`-`printf '\010'``printf '\013'`-`printf '\037'`]" out
ok $? "where there is no terminal no control character is written"

# ---- an earlier run's times ----

# The times are in files, so that no clock decides these tests: --resume of a
# finished file runs nothing, and compares the times that are in it.
cat >times.ini <<EOF
[experiment]
checks = none
[trial]
op = diag_delta
steps = 3, 4
batch = 2
n_state = 4
EOF
sed 's/^steps.*/steps = 3, 5/' times.ini >other_times.ini
sed 's/^checks.*/&\nrepeats = 0/' times.ini >untimed.ini
"$run" untimed.ini >out 2>err
against() {
    "$run" --resume --baseline "$@" times.ini
}
does "a run to compare with" 0 "^0 checks" "$run" times.ini
does "a run against itself" 0 "^[1-9][0-9]* checks, 0 failed" against times.h5
[ `grep -c 'ratio 1.000, .*: as before' out` = `tail -1 out | cut -d' ' -f1` ]
ok $? "each of its times is as before"
does "--tsv of a run against itself" 0 "	baseline	forward	1	[1-9][0-9.]*	pass	" \
    against times.h5 --tsv
[ `grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u` = 15 ]
ok $? "its records have as many fields"
if [ -n "$PYTHON" ]; then
    "$PYTHON" - >out 2>err <<EOF
import h5py, shutil
def doctored(name, scale, **attributes):
    shutil.copy("times.h5", name)
    with h5py.File(name, "r+") as f:
        for trial in f["trial"].values():
            rows = trial["time"][...]
            rows["median"] *= scale
            rows["spread"] = 0
            trial["time"][...] = rows
        f.attrs.update(attributes)
doctored("calm.h5", 1)
doctored("tenth.h5", .1)
doctored("long.h5", 1e6)
doctored("device.h5", 1, device="gpu32: an abacus\nref64: an abacus\nref32: an abacus")
doctored("schema.h5", 1, schema="ablate-0")
EOF
    ok $? "times can be doctored"
    does "times ten times as long" 1 "ratio 10.000, .*: SLOWER" against tenth.h5 -o calm.h5
    grep -q 'again: run-ablation --baseline tenth.h5 --threshold 5 -t' out
    ok $? "and how to see that again"
    does "ten times as long, where that may be" 0 ", 0 failed" \
        against tenth.h5 -o calm.h5 --threshold 901
    does "times a tenth as long" 0 "ratio 0.100, .*: faster" against calm.h5 -o tenth.h5
    does "times that are taken now" 0 ": faster" "$run" --baseline long.h5 -o now.h5 times.ini
    does "a trial that has no counterpart" 0 "trial 2, .* no such trial then" \
        "$run" --force --baseline long.h5 -o now.h5 other_times.ini
    sed -e '/^dtype/d' -e '$adtype = bf16' times.ini >bf16.ini
    does "times in bf16" 0 "^0 checks" "$run" bf16.ini
    "$PYTHON" - >out 2>err <<EOF
import h5py, shutil
shutil.copy("bf16.h5", "former.h5")
with h5py.File("former.h5", "r+") as f:
    for trial in f["trial"].values():
        rows = trial["time"][...]
        for row in rows:
            row["backend"] = row["backend"].replace(b"_bf16", b"16")
        assert b"ref16" in rows["backend"]
        trial["time"][...] = rows
    f.attrs["device"] = f.attrs["device"].replace("_bf16:", "16:")
EOF
    ok $? "backends can have their former names"
    does "a baseline with the former names of backends" 0 "^baseline .* 0 not compared" \
        "$run" --resume --baseline former.h5 bf16.ini
    sed 's/^\[experiment\]/&\nbackends = ref16/' bf16.ini >former.ini
    does "the former name of a backend" 0 " ref_bf16 " "$run" -o one.h5 --force former.ini
    does "another device" 2 "device.h5: .*another device's: 'an abacus'" against device.h5
    does "another schema" 2 "schema.h5: has the schema 'ablate-0'" against schema.h5
    "$PYTHON" -c 'import h5py
h5py.File("foreign.h5", "w")["k"] = 1' 2>err
    does "an HDF5 file that is no dump" 2 "foreign.h5: was not written by" against foreign.h5
else
    for name in doctored slower again threshold faster now counterpart bf16 former baseline name \
        device schema foreign; do
        skip "times beside others: $name" "no Python with numpy and h5py"
    done
fi
does "a baseline that is no HDF5 file" 2 "times.ini: is no HDF5 file" against times.ini
does "a baseline that is not there" 2 "nowhere.h5: No such file" against nowhere.h5
does "a baseline without times" 2 "untimed.h5: has no times" against untimed.h5
does "a run without times" 2 "repeats = 0: there are no times" "$run" --baseline times.h5 untimed.ini
does "a threshold that is no number" 2 "threshold 5%: not a decimal number" against times.h5 --threshold 5%
does "a threshold without a baseline" 2 "--threshold needs --baseline" "$run" --threshold 5 times.ini

# ---- measuring ----

"$run" --tsv -t 'e74_cell steps=4 batch=2 n_state=3 repeats=1' >out 2>err
ok $? "--tsv"
[ `grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u` = 15 ]
ok $? "--tsv has as many fields in every record"
does "--tsv of checks = power" 0 "	would pass	eps = 0	" \
    "$run" --tsv --force -t 'rmsnorm rows=64 columns=256 dtype=bf16 repeats=0 checks=power'
grep -q '	sees	y	' out && [ `grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u` = 15 ]
ok $? "it has what is seen, and as many fields"
gpu=`"$run" --version | sed -n 's/^  gpu_bf16 *//p'`
small='e74_cell steps=40 batch=2 n_state=16 dtype=fp32,bf16'
case $gpu in
*capability* | emulated*) timed=gpu_bf16 head='ceilings  memory .*B/s' ;;
*) timed=ref_bf16 head='no ceilings measured' ;;
esac
does "measure = time" 0 "$head" "$run" --goals report -o time.h5 -t "$small measure=time"
grep " $timed  *[a-z]*  *forward  *[0-9.]* [mu]*s " out >/dev/null
ok $? "a row for each pass of $timed"
# Widths: all lines fit but those that paste back, and a line of 80 has no less than the median.
for width in 80 120; do
    for what in time check crossover; do
        COLUMNS=$width "$run" --force -o wide.h5 -t "e74_cell steps=40 batch=1,2 n_state=16 proj=full \
            nonlin=tanh,rmsnorm z_mod=column,full dtype=fp32,bf16 measure=$what repeats=2" >out 2>err
        ! grep -v 'again: ' out | LC_ALL=C.UTF-8 awk -v width=$width 'length > width { print; n++ } END { exit !n }' &&
            grep -q '^ *1  .*[0-9]' out
        ok $? "measure = $what in $width columns"
    done
done
# Under the sanitizers the kernels of all cases would take minutes; they are run there by tests/once.
case $CFLAGS in
*-fsanitize=*) backends='backends = ref64, ref32, ref_bf16' ;;
*) backends= ;;
esac
cat >all.ini <<EOF
[experiment]
name = wide
repeats = 0
checks = none
$backends
[trial]
op = all
cases = contract
EOF
COLUMNS=80 "$run" --force all.ini >out 2>err
! grep -v 'again: ' out | LC_ALL=C.UTF-8 awk 'length > 80 { print; n++ } END { exit !n }' &&
    [ `grep -c '^   #  ' out` = `"$run" --list | sed -n '/^run-ablation/q; p' | wc -l` ]
ok $? "the cases of all operations in 80 columns, a table for each"
"$run" --tsv --goals report --force -o time.h5 -t "$small nonlin=tanh,rmsnorm measure=time repeats=2" >out 2>err
ok $? "measure = time, as records"
[ "`grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u`" = 36 ]
ok $? "they have 36 fields each"
# On a GPU others may free memory meanwhile; tests/memory is there for that.  On a busy machine the
# first of two runs may take all the time that there is for both.
case $gpu in emulated*) alone=1 ;; *) alone=0 ;; esac
grep -v '^#' out | awk -F'\t' -v alone=$alone 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["verdict"] ~ /^declined: ./ { next }
    { n++ }
    $at["runs"] < 1 || $at["runs"] > 2 || $at["min"] > $at["median"] || $at["median"] > $at["max"] ||
    $at["min"] <= 0 || $at["tokens_per_s"] <= 0 || $at["predicted_bytes"] <= 0 { bad = 1 }
    $at["bound_by"] != "" {
        largest = ""
        for (c = at["memory"]; c <= at["latency"]; c++)
            if (largest == "" || $c > $largest) largest = c
        if ($largest > $at[$at["bound_by"]]) bad = 1
        if (alone && $at["used_bytes"] < $at["predicted_bytes"]) bad = 1
    }
    END { exit bad || n < 8 }'
ok $? "with times in order, and bound by the largest fraction"
if [ $timed = gpu_bf16 ]; then
    does "kernels that decline a case are listed" 0 "declined  gpu_bf16 rows: " "$run" --goals report --force -o time.h5 \
        -t "$small nonlin=rmsnorm measure=time"
else
    skip "kernels that decline a case are listed" "no GPU"
fi
opens "h5py and xarray open its file" "" time.h5
if [ $timed = ref_bf16 ]; then
    skip "a kernel that is wrong has no time" "no GPU"
else
    does "a kernel that is wrong has no time" 1 "no time: it failed parity" \
        preloaded tanhs.so "$run" \
        -o bad.h5 -t 'e74_cell steps=4 batch=2 n_state=3 nonlin=tanh measure=time'
fi
does "measure = crossover" 0 "is bound by throughput" "$run" -o crossover.h5 \
    -t "e74_cell steps=9 batch=5 n_state=8 dtype=bf16 measure=crossover"
[ `awk -v b=$timed '($1 == b || $2 == b) && $3 ~ /^[0-9]*$/ { print $3 }
    $2 == b && $4 ~ /^[0-9]*$/ { print $4 }' out | sort -nu | tr '\n' ' ' | grep -c '^1 2 4 5 $'` = 1 ]
ok $? "at batches of 1, 2, 4 and the trial's"
opens "h5py and xarray open its file, too" "" crossover.h5
"$run" --tsv --force -o crossover.h5 -t "e74_cell steps=9 batch=5 n_state=8 measure=crossover" >out 2>err
[ "`grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u`" = 12 ]
ok $? "its records have 12 fields each"

# ---- goals ----

# With a kernel that is named, so that no verdict on the default decides.
goals='softmax rows=8 columns=64 measure=time'
does "a goal without measure = time" 2 "^-t: goal: only with measure = time" "$run" -n -t 'softmax goal="1 ns"'
does "--goals with another word" 2 "^run-ablation: --goals no: must be fail or report; try" "$run" --goals no \
    -o goal.h5 -t "$goals"
does "--goals without measure = time" 2 "^run-ablation: --goals report: only measure = time judges goals" \
    "$run" --goals report -o goal.h5 -t relu
"$run" -n -t "$goals goal=\"90 % memory\" goal_backward=\"12 us\"" >out 2>err
line=`cut -f2 out`
[ "`"$run" -n -t "$line" | cut -f2`" = "$line" ] && [ -n "$line" ]
ok $? "a line with goals pastes back"
if [ $timed = ref_bf16 ]; then
    does "a goal without a GPU is skipped" 0 "^skipped .*; goal: no kernel ran on a GPU" \
        "$run" -o goal.h5 -t "$goals goal=\"1 ns\""
    grep -q "^0 checks, 2 skipped: nothing was checked" out
    ok $? "and counted"
else
    does "a goal that is missed" 1 "^ *gpu32 softmax warp: forward took .*, the goal is 1 ns" \
        "$run" -o goal.h5 -t "$goals kernel=warp goal=\"1 ns\""
    again=`sed -n "s/^ *again: run-ablation -t '\(.*\)'/\1/p" out`
    does "its command" 1 "forward took .*, the goal is 1 ns" "$run" --force -o goal.h5 -t "$again"
    does "--goals report" 0 "^[0-9]* checks, 0 failed, 0 skipped, 1 goal missed" "$run" --goals report --force \
        -o goal.h5 -t "$again"
    grep -q "forward took .*, the goal is 1 ns" out
    ok $? "names it, too"
    does "resumed with it" 0 ", 0 failed, 0 skipped, 1 goal missed" "$run" --goals report --resume -o goal.h5 -t "$again"
    does "resumed without it" 1 ", 1 failed, 0 skipped" "$run" --resume -o goal.h5 -t "$again"
    does "resumed with another goal" 2 "holds another plan: trial 1 is" "$run" --resume -o goal.h5 \
        -t "$goals kernel=warp goal=\"2 ns\""
    does "a goal that is reached" 0 "^[0-9]* checks, 0 failed, 0 skipped" "$run" --force -o goal.h5 \
        -t "$goals kernel=warp goal=\"1000 s\" goal_backward=\"1000 s\""
    does "a ceiling that does not apply" 0 "^skipped  *goal: the ceiling tensor does not apply to forward" \
        "$run" --force -o goal.h5 -t "$goals kernel=warp goal=\"90 % tensor\""
    does "without a kernel's name the default is judged" 0 "^[0-9]* checks, 0 failed" \
        "$run" --goals report --force --verbose -o goal.h5 -t "$goals"
    grep -q "^ *checks  *gpu32 warp: parity 2, default 2" out
    ok $? "for both passes"
    opens "h5py and xarray open a file with goals" "" goal.h5
fi

# ---- judged by a sample ----

product='gemm M=200 N=130 K=9 judge=sampled repeats=0'
does "judge = sampled" 0 "1 of 1 trials judged by sample: 64 rows of each long axis" "$run" -o few.h5 -t "$product"
does "--tsv with it" 0 "^trial	.*	verdict	judged	elements	distance	sees	sees_row	sees_element	line$" "$run" --tsv --force -o few.h5 -t "$product"
if [ $timed = ref_bf16 ]; then
    for name in "the rows that were sampled are printed" "and how many elements were judged" \
        "a result that no sample covers is not judged" "h5py and xarray open a file with a sample" \
        "again: has judge = sampled" "measure = time of a sample"; do
        skip "$name" "no GPU"
    done
else
    grep -q "^# judged  *by sample of 64 of 200 M, 63 of 130 N (seed 1); all elements of .* by Freivalds' check" out
    ok $? "the rows that were sampled are printed"
    sees='[a-z ]*	[^	]*	[^	]*	[^	]*'
    grep -q "	parity	C	.*	pass	4032	26000	$sees	gemm " out && grep -q "	products	C	.*	pass	26000	26000	$sees	gemm " out
    ok $? "and how many elements were judged"
    opens "h5py and xarray open a file with a sample" "NumPy agrees: gemm" few.h5
    does "a result that no sample covers is not judged" 0 "^  *judged  *by sample of 64 of 200 rows" \
        "$run" --force -o few.h5 -t 'layernorm rows=200 columns=70 dtype=fp32 judge=sampled repeats=0'
    grep -q "^[0-9]* checks, 0 failed, 0 skipped, [24] cannot be judged" out
    ok $? "and the closing line counts it"
    does "again: has judge = sampled" 1 "again: run-ablation -t 'e74_cell .* judge=sampled'" \
        preloaded tanhs.so "$run" \
        --force -o few.h5 -t 'e74_cell steps=3 batch=70 heads=1 n_state=3 judge=sampled repeats=0'
    does "measure = time of a sample" 0 "^  *judged  *by sample of 64 of 200 M, 63 of 130 N" \
        "$run" --goals report --force -o few.h5 -t 'gemm M=200 N=130 K=9 judge=sampled measure=time'
fi
"$run" --force -o few.h5 -t "$product" >out 2>err && mv few.h5 few.h5.part
does "--resume with another judgement" 2 "another plan: trial 1 is judged by a sample there" \
    "$run" --resume -o few.h5 -t 'gemm M=200 N=130 K=9 judge=full checks=parity repeats=0'

echo "1..$n"
