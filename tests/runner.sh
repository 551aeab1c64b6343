#!/bin/sh
# run-ablation as a user runs it: the main job, plans, options, drawn cases, exit codes and messages.
# TAP on stdout.  $srcdir, $PYTHON and $H5DUMP come from the Makefile.
. "${srcdir:-.}/tests/runner_tap.sh"

# ---- the main job ----

main=$srcdir/experiments/e74_diag.ini
if [ "$NVCC" = emulated ]; then
    # With all its steps that takes minutes.
    sed -e 's/^steps = 128/steps = 16/' -e "s|^file = \.\.|file = $srcdir|" "$main" >e74_diag.ini
    main=e74_diag.ini
fi
does "the main job" 0 "^[0-9]* checks, 0 failed, [0-9]* skipped" "$run" "$main"
# What differs from run to run and from one processor to another: times, errors, where the largest are, and
# tenths of the size of the file, whose tensors are compressed.
constant() {
    sed -e '/^\$ /d' -e '/^ *\.\.\.$/d' -e '/^$/d' -e 's/^  CPU .*/  CPU/' -e 's|from [^ ]*data/|from data/|' \
        -e 's/[0-9][0-9.]* [num]*s\>/TIME/g' -e 's/[0-9.]*e-[0-9]*/ERROR/g' -e 's/ERROR *[A-Za-z_][A-Za-z_0-9]* /ERROR of /' \
        -e 's/([A-Za-z_0-9]*, trial [0-9]*)/(of)/' -e 's/  */ /g' \
        -e 's/^\([^ ]*\.h5 [0-9]*\)\.[0-9] MiB,/\1 MiB,/' "$1"
}
if [ -z "$NVCC" ]; then
    sed -n '/^## The report/,/^## /p' "$srcdir/README.md" | sed -n '/^```/,/^```/p' | sed '/^```/d' >sample
    constant sample >shown
    constant out >printed
    awk 'NR == FNR { line[++n] = $0; next } at < n && $0 == line[at + 1] { at++ }
        END { if (n < 20 || at < n) { print "not printed: " line[at + 1]; exit 1 } }' shown printed >err
    ok $? "README shows what it prints"
else
    skip "README shows what it prints" "its report is of a build without CUDA"
fi
[ -f e74_diag.h5 ] && [ ! -f e74_diag.h5.part ]
ok $? "the main job leaves its file under its name"
if [ -n "$H5DUMP" ]; then
    "$H5DUMP" -n e74_diag.h5 >out 2>err
    for path in /trial/0001/in/x /trial/0001/dout/out /trial/0024/ref64/d/W_z /trial/0001/ref32/out \
        /trial/0024/check /trial/0001/time; do
        grep -q "dataset    $path\$" out
        ok $? "h5dump shows $path"
    done
else
    skip "h5dump opens the file" "no h5dump"
fi
opens "h5py and xarray open it, NumPy computes the same outputs" "" e74_diag.h5 0001 0008 0013 0024

# ---- plans ----

"$run" -n "$srcdir/experiments/e74_all.ini" >out 2>err
[ `wc -l <out` = 192 ]
ok $? "e74_all has 192 trials"
cut -f2 out | sed -n '1~8p' | while read -r line; do
    [ "`"$run" -n -t "$line" | cut -f2`" = "$line" ] || echo "$line"
done >err
[ ! -s err ]
ok $? "a line of a plan pastes back"
"$run" -n -t all >out 2>err
"$run" --list | sed -n '/^run-ablation/q; s/ .*//p' >names
cut -f2 out | cut -d' ' -f1 | cmp - names >err 2>&1
ok $? "all is each operation that --list names"
does "references alone are named: no GPU is looked for" 0 "^  CPU" "$run" -t 'softmax rows=2 columns=2 backends=ref32 save=none' -o alone.h5
if grep -q '^  GPU' out; then false; else true; fi
ok $? "and none has a line"
takes='^[^ ]*\.h5: [0-9]* trials* takes* up to [0-9.]* [KMG]*i*B\(ytes\)*\(, less by compression\)*$'
for ini in "$srcdir"/experiments/*.ini; do
    "$run" -n "$ini" >out 2>all
    grep -v -e "$takes" -e '^the references take about' -e '^all runs take ' -e '^variant  *task  *runs ' \
        -e '^[a-z0-9_]*  *[a-z]*  *[0-9][0-9]*  *[0-9][0-9]*  *[0-9]* .* \([0-9.]* s\|[0-9.]* min\|[0-9.]* h\)$' all >err
    if [ -s err ] && ! grep -v ': .* needs .* of memory, ' err >/dev/null; then
        skip "`basename "$ini"` is a plan" "it needs more memory than there is here"
    else
        grep -q '^1	' out && [ ! -s err ] && [ `grep -c "$takes" all` = 1 ]
        ok $? "`basename "$ini"` is a plan, and -n says how large its dump will be"
    fi
done

# ---- how large a dump will be ----

# The size that was printed, in bytes, and what its last digit may hide.
printed() {
    sed -n 's/.* up to \([0-9.]*\) \([KMG]\)iB.*/\1 \2/p' "$1" | awk '{
        unit = 1024 ^ index("KMG", $2); print $1 * unit, 0.05 * unit }'
}
# predicted PERCENT WORDS [OPTION]: the dump is not larger than was said, and smaller by at most so much.
predicted() {
    name="the size of a dump is known to $1 %: $2"
    "$run" -n -o size.h5 -t "$2" >out 2>plan && "$run" $3 --force -o size.h5 -t "$2" >out 2>err
    e=$?
    said=`grep 'the dump takes' out | sed 's/.*takes //'`
    grep -q "takes* $said$" plan && echo "$e `wc -c <size.h5` `printed plan`" >err &&
        awk -v percent="$1" '$1 || $2 > $3 + $4 || $2 < ($3 - $4) * (1 - percent / 100) { exit 1 }' err
    ok $? "$name"
}
predicted 2 'softmax rows=1000 columns=1000 compress=0 repeats=0 checks=parity'
predicted 2 'softmax rows=1000 columns=1000 compress=0 save=outputs dtype=fp32,bf16'
predicted 3 'linear rows=500 dim_in=300 dim_out=500 compress=0 accumulate=yes checks=parity,properties'
predicted 10 'e74 steps=64 batch=4 n_state=16,64 dim=64 compress=0 repeats=1'
predicted 5 'dequantise dim_out=1000 dim_in=1024 compress=0 checks=none repeats=0'
predicted 2 'gemm M=600 N=600 K=8 compress=0 measure=time' '--goals report'
predicted 60 'softmax rows=1000 columns=1000 compress=0 save=none'
predicted 75 'relu rows=1,2,3,4,5,6,7,8,9 dim=1,2,3'
# (Of every operation's cases under the sanitizers tests/once is enough.)
every=all
[ "${CFLAGS#*-fsanitize=}" = "$CFLAGS" ] || every=softmax
predicted 75 "$every cases=contract checks=none repeats=0 save=outputs"
"$run" --inputs 'softmax rows=300 columns=300' -o size.h5 >out 2>err && grep -q 'the dump takes up to [78][0-9.]* KiB' out
ok $? "and that of inputs alone"

# README's own experiment, which is the first that somebody runs: its dump is small, and -n, which says so of a
# plan that takes a minute or more, says nothing.
sed -n '/^## Your own experiment/,/^## /p' "$srcdir/README.md" | sed -n '/^```ini/,/^```/p' | sed '/^```/d' >my.ini
cp "$srcdir/data/sample.txt" my.txt
"$run" -n my.ini >out 2>plan
[ `wc -l <out` = 12 ] && [ `wc -l <plan` = 1 ] &&
    printed plan | awk '{ exit $1 > 16 * 1048576 }'
ok $? "README's own experiment is small, and takes less than a minute"
sed '/^steps/d; /^batch/d; /^dim/d' my.ini >long.ini
"$run" -n long.ini >out 2>plan
grep -q '^the references take about [0-9]* [mh]' plan
ok $? "with the default sizes it is not"

# ---- options ----

does "--help" 0 "^usage" "$run" --help
does "--version" 0 "ref64" "$run" --version
does "-h" 0 "^usage" "$run" -h
does "--list" 0 "^rmsnorm  *y = w x" "$run" --list
[ `wc -l <out` -lt 80 ]
ok $? "is short"
grep -q "^ *judge  *\[auto\]  *.*full, all elements; sampled, some rows" out
ok $? "and has the key judge"
does "--list e74_cell" 0 "tied_kvq" "$run" --list e74_cell
does "--list of a seed" 0 "dropout_seed  *0 to 18446744073709551615  *\[1\]" "$run" --list attention
does "--list prints the cost of a pass" 0 "chain of 512 steps, 8 FLOP + 1 special each" "$run" --list e74_cell
does "--list of nothing" 2 "no operation nothing" "$run" --list nothing
does "--list says which setting gives another shape" 0 \
    "S0 .*\[batch,heads,n_state,n_state\]; state=diagonal: \[batch,heads,n_state\]" "$run" --list e74
small=$srcdir/tests/small.gguf
does "--list FILE.gguf" 0 "^blk\.0\.q6_k  *q6_k  *\[3,512\]  *1260$" "$run" --list "$small"
head -c 700 "$small" >cut.gguf
does "--list of one that is cut off" 2 "run-ablation: cut\.gguf: ends within tensor" "$run" --list cut.gguf
does "--list of one that is not there" 2 "no\.gguf: No such file or directory" "$run" --list no.gguf

does "--list of a name nearly right" 2 "no operation linaer; did you mean 'linear'?" "$run" --list linaer
# usage NAME SENTENCE ARGUMENT...: refused, in one line.
usage() {
    name=$1 sentence=$2
    shift 2
    "$run" "$@" >out 2>err
    [ $? = 2 ] && [ ! -s out ] && echo "run-ablation: $sentence; try run-ablation --help" | cmp -s - err
    ok $? "usage: $name"
}
usage "no arguments" "no FILE.ini and no -t WORDS is given"
usage "an unknown option" "there is no option --no-such-option, or more than one that begins so" \
    --no-such-option x.ini
usage "an unknown letter" "there is no option -x" -x x.ini
usage "a missing argument" "-t needs an argument" -t
usage "a missing argument of a long option" "--baseline needs an argument" x.ini --baseline
for option in -t -o --baseline --threshold --goals --random --from --seed --op --checks --judge --inputs --as --report \
    --summary --by --decode; do
    usage "another option in place of that of $option" "$option needs an argument, and --tsv is an option" $option --tsv
done
usage "of one letter" "-o needs an argument, and -n is an option" -o -n x.ini
usage "that is shortened" "--summary needs an argument, and --cs is an option" --summary --cs
usage "with an argument of its own" "--summary needs an argument, and --by=seed is an option" --summary --by=seed
usage "an argument too many" "--tsv takes no argument" --tsv=yes x.ini
usage "two files" "a.ini and b.ini are two files; give one" a.ini b.ini
usage "--version and a word" "--version takes no argument; leave out extra" --version extra
usage "--help and a word" "--help takes no argument; leave out extra" --help extra
usage "-h behind a word" "--help takes no argument; leave out a.ini" a.ini -h
usage "--help and -t" "--help takes no other option beside it" --help -t relu
usage "--version and an option" "--version takes no other option beside it" --tsv --version
usage "--list and -t" "--list takes no other option beside it" --list -t relu
usage "--list with --random" "--list takes no other option beside it" --random 3 --list relu
usage "two operations" "relu and silu are two operations; give one" --list relu silu
usage "a file and words" "-t and the file a.ini cannot both be run; give one" a.ini -t relu
usage "--verbose and --tsv" "--tsv has a record for each check already; leave out --verbose" \
    --verbose --tsv -t relu
usage "--random and --verbose" "--random takes only --from, --seed, --op, --checks and --judge beside it" \
    --random 3 --verbose

# ---- what a verdict sees ----

norm='rmsnorm rows=64 columns=256 dtype=bf16 repeats=0'
does "--verbose says what would pass" 0 "^      would pass  eps = 0$" "$run" --verbose -o sees.h5 -t "$norm"
grep -q "^      sees      [a-z0-9_]* [a-z0-9_]*, y: [0-9.]* %, a row [0-9.]* %, an element [0-9.]* %$" out
ok $? "and what the verdicts see"
sed -n '/^## What a verdict sees/,/^## /p' "$srcdir/doc/experiments.md" | sed -n '/^```/,/^```/p' | grep '^      would pass' >shown
grep '^      would pass' out | cmp -s shown - && [ `wc -l <shown` -gt 2 ]
ok $? "doc/experiments.md shows the same"
does "the same plan without it" 0 "^  replaces sees\.h5 of [0-9-]*$" "$run" -o sees.h5 -t "$norm"
! grep -q "would pass\|^      sees" out
ok $? "says neither"
does "small rows" 0 "^      sees  " "$run" --verbose -o tiny.h5 -t "$norm fill=tiny"
! grep -q "would pass  .*eps" out
ok $? "show eps"
does "a choice is named" 0 "^      would pass  mask = window$" \
    "$run" --verbose -o mask.h5 -t 'attention steps=9 batch=1 dim=8 repeats=0 checks=power'
! "$run" --verbose -o data.h5 -t 'quantise dim_out=3 dim_in=256 repeats=0 checks=power' | grep -q "would pass  data"
ok $? "how inputs are drawn is no choice that results show"
printf '[experiment]\nname = power\nchecks = power\nrepeats = 0\n[trial]\nop = rmsnorm\nrows = 64\ncolumns = 256\ndtype = bf16\n' \
    >power.ini
does "checks = power" 0 "^0 checks, [0-9]* skipped: nothing was checked" "$run" power.ini
if [ -n "$H5DUMP" ]; then
    "$H5DUMP" -a /trial/0001/would_pass power.h5 >out 2>err && grep -q '(0): "eps = 0$' out
    ok $? "leaves in the dump what would pass"
    ! "$H5DUMP" -a /trial/0001/would_pass sees.h5 >out 2>err
    ok $? "but not where that was not asked"
else
    skip "what would pass in the dump" "no h5dump"
fi
does "--verbose of what is judged by a sample" 0 "judged by sample" \
    "$run" --verbose -o sampled.h5 -t 'gemm M=200 N=200 K=9 judge=sampled repeats=0'
! grep -q "would pass" out
ok $? "asks for nothing"
does "drawn cases and power" 2 "--checks parity,power: --random takes differences, parity and properties" \
    "$run" --random 3 --checks parity,power

# ---- terms ----

sed -n '/^## The report/,/^## Requirements/p' "$srcdir/README.md" | grep -q '^`params`'
ok $? "README says what params are"
sed -n '/^\.SH OUTPUT/,/^\.SH MEASURING/p' "$srcdir/man/run-ablation.1" | grep -q '^\.B params$'
ok $? "so does the man page"
grep -q '^| `params` |' "$srcdir/doc/glossary.md"
ok $? "and the glossary"

for term in yardstick handover no_z z_mod sees "would pass" "wrong kernel"; do
    grep -q "^| [^|]*\<$term\>[^|]* | " "$srcdir/doc/glossary.md"
    ok $? "the glossary has $term"
done
sed -n '/^## The report/,/^## Requirements/p' "$srcdir/README.md" | grep -q 'doc/glossary\.md'
ok $? "README names the glossary where it shows a report"
does "--help names it" 0 "doc/glossary.md" "$run" --help
grep -q 'doc/glossary\.md' "$srcdir/man/run-ablation.1"
ok $? "so does the man page"
if [ -c /dev/full ]; then
    for option in --help --version --list "--list e74" "-n -t relu"; do
        "$run" $option >/dev/full 2>err
        [ $? = 2 ] && grep -q "standard output: No space left" err
        ok $? "$option to a full disk exits with 2"
    done
else
    skip "options to a full disk" "no /dev/full"
fi

# ---- cases that are drawn ----

closing=' cases, 0 failed, [0-9]* cannot be judged, [1-9][0-9]* checks, [0-9]* skipped, [0-9]* s$'
does "drawn cases" 0 "^20$closing" "$run" --random 20
does "drawn cases of one operation, from one on, others" 0 "^12$closing" \
    "$run" --random 32 --from 20 --seed 7 --op relu --checks differences
grep -q 'random cases 20 to 31 of seed 7, relu$' out
ok $? "and the head says which"
does "drawn cases, and nothing to check" 0 '^3 cases, 0 checks, [0-9]* skipped: nothing was checked' \
    "$run" --random 3 --checks none
does "drawn cases and a file" 2 "it takes no file" "$run" --random 3 "$main"
does "drawn cases and an output" 2 "takes only --from, --seed, --op, --checks and --judge" \
    "$run" --random 3 -o drawn.h5
does "cases from one on that is not drawn" 2 "--from 3: " "$run" --random 3 --from 3
does "drawn cases of no operation" 2 "--op nosuch: there is no such operation" \
    "$run" --random 3 --op nosuch
does "drawn cases and no such check" 2 "--checks: checks = nosuch: not one of" \
    "$run" --random 3 --checks nosuch
does "no number of cases" 2 "--random 0: " "$run" --random 0
does "an option of drawn cases alone" 2 "need --random" "$run" --op relu

# ---- bad input ----

does "nothing to check" 0 "^0 checks, [0-9]* skipped: nothing was checked" "$run" -t 'relu rows=3 checks=none'
does "nothing but a GPU to check" 0 "^[1-9].* checks, 0 failed\|: nothing was checked" \
    "$run" -t 'relu rows=3 checks=parity'
mkfifo pipe
does "a pipe for an ini" 2 "pipe: cannot be read: is a pipe" "$run" pipe
does "a pipe for a text" 2 "file = pipe: is a pipe" "$run" -t 'e74 input=text file=pipe'
does "standard input" 2 "standard input cannot be read" "$run" -
printf '[trial \033[31m]\nop = relu\nrows = 3\n[trial b]\nop = relu\nrows = 3\n' >red.ini
does "control characters in a section's name" 0 '\\x1b\[31m' "$run" red.ini
# Limits end with a sentence, and in time: a hang would be status 124.
does "more threads than can be" 0 "100000 threads are too many for" env OMP_NUM_THREADS=100000 \
    timeout 60 "$run" -t 'relu rows=30 repeats=0'
# (AddressSanitizer takes an address space of terabytes.)
if (ulimit -s 1000000 && ulimit -v 2000000) 2>err && [ "${CFLAGS#*-fsanitize=address}" = "$CFLAGS" ]; then
    # Each thread's stack is half of the memory.
    (ulimit -s 1000000 && ulimit -v 2000000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=8 \
        exec timeout -s KILL 60 "$run" -t 'relu rows=30 repeats=0') >out 2>err
    [ $? = 0 ] && grep -q "of 8 threads could be started (see ulimit); using 1" err
    ok $? "threads that ulimit does not let start"
    for limit in "-v 100000" "-v 150000" "-v 200000" "-v 300000" "-d 60000" "-d 100000" "-d 200000"; do
        (ulimit $limit && exec timeout -s KILL 60 "$run" -t 'linear rows=9') >out 2>err
        got=$?
        [ $got = 2 -o $got = 127 ] && grep -q "ulimit ${limit% *} leaves\|shared librar" err
        ok $? "ulimit $limit"
    done
    # Libraries that take much address space, as CUDA's do, leave little of a limit that looks large.
    echo 'static char bulk[768 << 20]; char *bulk_at(void) { return bulk; }' >bulk.c
    $CC -shared -fPIC -o bulk.so bulk.c || exit 1
    beside_bulk() {
        hung=0
        for left in 40 100 130 160 200 240 280; do
            (ulimit -v $(((768 + left) * 1024)) && preloaded bulk.so timeout -s KILL 20 "$run" "$@") >out 2>err
            [ $? = 137 ] && hung=1 && echo "# $left MiB left: no end in 20 s"
        done
        ok $hung "little address space beside large libraries: $*"
    }
    beside_bulk --version
    beside_bulk --list
    beside_bulk -t 'linear rows=9'
    does "a small stack that can be made larger" 0 "0 failed" sh -c \
        'ulimit -S -s 64 && exec "$@"' sh "$run" -t 'linear rows=9 repeats=0'
    does "a small stack" 2 "ulimit -s leaves 64 KiB of stack, a run needs 512" sh -c \
        'ulimit -s 64 && exec "$@"' sh "$run" -t 'linear rows=9 repeats=0'
    does "small stacks of OpenMP's threads" 0 "0 failed" env OMP_STACKSIZE=64k OMP_NUM_THREADS=2 \
        "$run" -t 'linear rows=9 repeats=0'
    does "a plan is held against ulimit -d" 2 "needs .* GiB" sh -c \
        'ulimit -d 1000000 && exec timeout -s KILL 60 "$@"' sh "$run" -t 'silu rows=60000 dim=4000'
else
    for what in "threads that ulimit does not let start" "small address spaces" "little data" \
        "large libraries" "small stacks"; do
        skip "$what" "ulimit -v cannot be set here"
    done
fi
# The program begins again at its start, with other variables; named PROGRAM NAME: it keeps its name.
named() {
    env -u OMP_WAIT_POLICY -u OPENBLAS_NUM_THREADS "$1" -o named.h5 \
        -t 'linear rows=1000 dim_in=1000 dim_out=1000' >out 2>err &
    pid=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.2
        tr '\0' '\n' 2>/dev/null </proc/$pid/environ | grep -q '^OMP_WAIT_POLICY=' && break
    done
    sleep 0.1
    cat /proc/$pid/comm >out
    kill -KILL $pid
    wait $pid 2>/dev/null
    rm -f named.h5*
    [ "`cat out`" = run-ablation ]
    ok $? "$2"
}
if [ -r /proc/$$/comm ]; then
    named "$run" "the name of the process"
    cp "$run" removed && exec 3<removed && rm removed
    named /proc/self/fd/3 "the name of the process of a file that was removed"
    exec 3<&-
else
    skip "the name of the process" "no /proc here"
fi
# 2.7e9 parameters at 1008 GB/s: 10.7 ms in fp32, 1.51 ms in q4_k.
does "--decode, fp32" 0 "^2.70 G parameters of 32 bits: 10.1 GiB; read at 1008 GB/s in 10.7 ms, 93.33 tokens" \
    "$run" --decode 2.7e9 32 1008
does "--decode, q4_k" 0 " 1.51 ms, 663.7 tokens per second" "$run" --decode 2.7e9 4.5 1008
does "--decode without a rate" 2 "three words" "$run" --decode 2.7e9 4.5
does "--decode with words too many" 2 "three words" "$run" --decode 2.7e9 4.5 1008 9
does "--decode beside an option" 2 "nothing else" "$run" --tsv --decode 2.7e9 4.5 1008
does "--decode of no number" 2 "bits of a parameter: four" "$run" --decode 2.7e9 four 1008
does "--decode at no speed" 2 "GB per second: 0" "$run" --decode 2.7e9 4 0
does "an ini that is not there" 2 "nowhere.ini" "$run" nowhere.ini
printf '[trial]\nop = e74\nnonlin = tahn\n' >bad.ini
does "an unknown choice" 2 "^bad.ini:3: .*tahn" "$run" bad.ini
does "more than memory holds" 2 "needs .* GiB" "$run" -t 'e74_cell steps=1000000 batch=1000000'
does "an output that cannot be written" 2 "nowhere/x.h5" "$run" -o nowhere/x.h5 -t 'e74 steps=2 batch=2 n_state=4 dim=3'
printf '[experiment]\nbackends = gpu32\nrepeats = 0\n[trial]\nop = linear\nrows = 3\n' >gpu.ini
does "a device that is not there" 3 "device = 1000 cannot be used: " "$run" -t 'linear device=1000'
does "a required backend that is missing" 3 "gpu32 is required and missing" \
    env CUDA_VISIBLE_DEVICES= "$run" gpu.ini

echo "1..$n"
