#!/bin/sh
# Trials that are dealt out: to the (emulated) devices of this machine, and to the ranks of mpirun.  However many there are,
# and whichever of them is killed, the file has what that of one process has.  TAP on stdout.  $srcdir, $PYTHON, $NVCC and
# $CFLAGS come from the Makefile.
test -n "$TMPDIR" || ! test -w /dev/shm || export TMPDIR=/dev/shm # where syncing takes no time
. "${srcdir:-.}/tests/runner_tap.sh"
KILLS=25 SEED=11
sanitized=0
case $CFLAGS in *-fsanitize=*) sanitized=1 KILLS=5 ;; esac
emulated=0
[ "$NVCC" != emulated ] || emulated=1
[ $emulated = 1 ] || export CUDA_VISIBLE_DEVICES=
export OMP_NUM_THREADS=1
# As root, in a container, with fewer processors than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_plm_rsh_agent=sh OMPI_MCA_btl_vader_single_copy_mechanism=none
mpi=1
grep -q '^#define HAVE_MPI 1' "`dirname "$run"`/config.h" && command -v mpirun >/dev/null || mpi=0
# MPI keeps memory to its end.
ranks() {
    of=$1
    shift
    ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" timeout 120 mpirun -n "$of" "$run" "$@"
}

cat >checks.ini <<'INI'
[experiment]
name = dealt
repeats = 0
[trial]
op = softmax
rows = 3, 17, 40
columns = 5, 33
[trial]
op = e74_cell
steps = 3, 9
batch = 2
dtype = fp32, bf16
INI
cat >runs.ini <<'INI'
[experiment]
name = runs
measure = train
checks = none
save = final
[model z]
mixer = e74
proj = full
z_mod = row
n_state = 8
width = 16
[model none]
mixer = none
width = 16
[task bits]
task = parity
length = 8
[train]
updates = 6
batch = 4
eval_every = 3
eval_rows = 8
lr = 1e-3, 1e-2
seed = 1, 2
confirm = 5
[trial]
model = z, none
task = bits
INI
for ini in checks runs; do
    sed 's/^name.*/&\ndevice = all/' $ini.ini >$ini.all.ini
    sed 's/^name.*/&\ndevice = 2, 0/' $ini.ini >$ini.two.ini
done

"$PYTHON" -c 'import h5py' 2>err
without=$?
# gone NAME: nothing but the file is left.
gone() {
    [ -s "$1.h5" ] && [ "`ls -d "$1".h5.part* "$1".state 2>/dev/null`" = "" ]
    ok $? "$1.h5 alone is left"
}

# on NAME FILE NUMBER...: each trial ran on one of these devices; without a number: on none.
on() {
    what=$1 file=$2
    shift 2
    if [ $without = 0 ]; then
        "$PYTHON" -c 'import sys, h5py
trials = h5py.File(sys.argv[1])["trial"].values()
ran = {int(t.attrs.get("device_number", -1)) for t in trials}
assert trials and ran <= ({int(a) for a in sys.argv[2:]} or {-1}), ran' "$file" "$@" >out 2>err
        ok $? "$what"
    else
        skip "$what" "no h5py"
    fi
}

does "checks, in one process" 0 " 0 failed" "$run" -o checks.h5 checks.ini
does "runs, in one process" 0 "10 runs, 0 diverged" "$run" -o runs.h5 runs.ini

# ---- devices ----

first=
[ $emulated = 0 ] || first=0
on "checks: the number of the device" checks.h5 $first
on "runs: the number of the device" runs.h5 $first
if [ $emulated = 1 ]; then
    EMU_DEVICES=3
    export EMU_DEVICES
    sed 's/^device.*/device = 2/' checks.all.ini >third.ini
    does "on the third" 0 " 0 failed" "$run" -o third.h5 third.ini
    on "on the third: its number" third.h5 2
    same_dumps "on the third: the same" checks.h5 third.h5
    for many in 1 2 4; do
        EMU_DEVICES=$many
        does "checks on $many devices" 0 " 0 failed" "$run" -o checks$many.h5 checks.all.ini
        gone checks$many
        same_dumps "checks on $many devices: the same" checks.h5 checks$many.h5
        does "runs on $many devices" 0 "10 runs, 0 diverged" "$run" -o runs$many.h5 runs.all.ini
        gone runs$many
        same_dumps "runs on $many devices: the same" runs.h5 runs$many.h5
    done
    does "on two of four" 0 " 0 failed" "$run" -o two.h5 checks.two.ini
    same_dumps "on two of four: the same" checks.h5 two.h5
    on "on two of four: their numbers" two.h5 0 2
    does "records" 0 "^10	gpu_bf16	.*parity" "$run" --tsv --force -o two.h5 checks.two.ini
    EMU_DEVICES=2
    sed 's/^device.*/device = 0, 5/' checks.all.ini >five.ini
    does "behind one that is" 3 "device = 5 cannot be used: there are 2" "$run" -o none.h5 five.ini
    does "a device that is not there" 3 "device = 2 cannot be used: there are 2" "$run" -o none.h5 checks.two.ini
    # Several checks on each: as many workers, and no more than trials; on the first device, or on the one that is named.
    sed 's/^device.*/&\nper_device = 3/' checks.all.ini >several.ini
    for many in 1 2 4; do
        EMU_DEVICES=$many
        does "three on each of $many" 0 "dealt out to `expr $many '*' 3` workers" "$run" --force -o several.h5 several.ini
        gone several
        same_dumps "three on each of $many: the same" checks.h5 several.h5
        on "three on each of $many: their numbers" several.h5 `seq 0 $((many - 1))`
    done
    sed -e 's/^device.*/device = 1/' several.ini >second.ini
    does "on the second" 0 "dealt out to 3 workers" "$run" --force -o several.h5 second.ini
    on "on the second: its number" several.h5 1
    sed -e '/^device/d; s/^per_device.*/per_device = 64/' several.ini >first.ini
    does "on the first, as many as trials" 0 "dealt out to 10 workers" "$run" --force -o several.h5 first.ini
    on "on the first: its number" several.h5 0
    same_dumps "on the first: the same" checks.h5 several.h5
    sed 's/^repeats.*/&\nbackends = ref32/' first.ini >references.ini
    "$run" --force -o several.h5 references.ini >out 2>err && ! grep -q 'dealt out' out
    ok $? "on none where references alone are named"
    # What several take at once: 275 MiB each, where 447 are; and a file each, where a disk has room for one process.
    printf '%s\n' '[experiment]' 'name = large' 'repeats = 0' 'checks = parity' 'save = none' 'device = 0, 1' '[trial]' \
        'op = softmax' 'rows = 2000, 2001, 2002' 'columns = 1000' >large.ini
    "$run" -n large.ini >out 2>err && grep -q '^2 workers take up to 549.. MiB of memory at once, and 2.0 MiB beside large.h5$' err
    ok $? "-n says what two workers take"
    "$run" -n checks.ini >out 2>err && ! grep -q worker err
    ok $? "and nothing of one process"
    if [ $sanitized = 0 ]; then
        (ulimit -v 800000 && exec "$run" -o large.h5 large.ini) >out 2>err
        [ $? = 2 ] && [ ! -s out ] && [ ! -e large.h5 ] && [ `wc -l <err` = 1 ] &&
            grep -q '^run-ablation: 2 workers need 549.. MiB of memory for the largest trials at once, 4.* are available; start fewer$' err
        ok $? "too much memory at once"
        sed 's/^device.*/device = 0/' large.ini >alone.ini
        (ulimit -v 800000 && exec "$run" -o alone.h5 alone.ini) >out 2>err
        ok $? "not for one alone"
    fi
    EMU_DEVICES=3
    mkdir small
    if mount -t tmpfs -o size=4m none small 2>/dev/null; then
        "$run" -o small/two.h5 checks.two.ini >out 2>err
        [ $? = 2 ] && [ -z "`ls small`" ] && grep -q "MiB to spare while it is written from 2 workers' files; 4.0 MiB are free there" err
        ok $? "no disk for the workers' files"
        does "but for one process" 0 " 0 failed" "$run" -o small/one.h5 checks.ini
        umount small
    else
        skip "no disk for the workers' files" "a file system cannot be mounted here"
    fi
else
    sed 's/^name.*/&\nper_device = 3/' checks.ini >several.ini
    does "several on each, of none" 0 " 0 failed" "$run" -o several.h5 several.ini
    same_dumps "several on each, of none: the same" checks.h5 several.h5
    does "no devices" 3 "device = all: there is none" "$run" -o none.h5 checks.all.ini
fi
does "all and another" 2 "^-t: device: nothing can stand beside all" "$run" -n -t 'softmax rows=2 device=all,0'
does "another and all" 2 "^-t: device: nothing can stand beside all" "$run" -n -t 'softmax rows=2 device=0,all'
does "one twice" 2 "^-t: device: 1 is listed twice" "$run" -n -t 'softmax rows=2 device=1,0,1'
does "no number" 2 "^-t: device = gpu: " "$run" -n -t 'softmax rows=2 device=gpu'

# ---- a time ----

does "no time: nothing begins" 5 "stopped after 0 of 10 trials; --resume goes on from there" "$run" --until 0s -o late.h5 checks.ini
does "nor a run" 5 "stopped after 0 of 10 trials" "$run" --until 0.0m -o lruns.h5 runs.ini
[ $emulated = 0 ] || does "nor on devices" 5 "stopped after 0 of 10 trials" "$run" --until 0h --force -o late.h5 checks.all.ini
does "time enough" 0 " 0 failed" "$run" --until 1.5h --resume -o late.h5 checks.ini
same_dumps "time enough: the same" checks.h5 late.h5
does "for runs" 0 "10 runs, 0 diverged" "$run" --until 90m --resume -o lruns.h5 runs.ini
same_dumps "for runs: the same" runs.h5 lruns.h5
# The first trial of long.ini takes longer than it has.
sed -e 's/^rows.*/rows = 400/; s/^columns.*/columns = 400/; /^op = e74_cell/,$d' checks.ini | sed 's/^op = softmax/&\nseed = 1, 2, 3/; $d' >long.ini
does "some are left" 5 "stopped after [12] of 3 trials" "$run" --until 0.2s -o long.h5 long.ini
for text in 5 x 5d m -1m; do
    does "--until $text" 2 "^run-ablation: --until $text: must be a time, as 90s, 55m or 1.5h" "$run" --until=$text checks.ini
done
does "--until of --random" 2 "^run-ablation: --random takes only" "$run" --until 5m --random 1

# ---- the table of speed-ups ----

if [ $emulated = 1 ] && [ $without = 0 ]; then
    mkdir table
    with="mpirun -n"
    [ $mpi = 1 ] || with=
    EMU_DEVICES=3 RUN_ABLATION=$run DIR=table MPIRUN=$with sh "$srcdir/experiments/scaling.sh" '1 3' checks.ini >out 2>err
    [ $? = 0 ] && [ `grep -c '^checks .* % *yes$' out` = $((2 + mpi)) ]
    ok $? "scaling.sh: equal bits on one device and three, and by ranks"
    "$PYTHON" -c 'import h5py
f = h5py.File("table/checks-3.h5", "a")
f["trial/0002/ref64/y"][0, 0] += 1e-9' >out 2>err &&
        ! "$PYTHON" "$srcdir/tests/same.py" table/checks-1.h5 table/checks-3.h5 $may_differ >out 2>err
    ok $? "what it compares them by sees a changed value"
    RUN_ABLATION=$run DIR=table sh "$srcdir/experiments/scaling.sh" 1 nothing.ini >out 2>err
    [ $? = 1 ] && grep -q '^nothing.ini: cannot be read' err
    ok $? "scaling.sh of a file that is not there fails"
    RUN_ABLATION=$run DIR=table sh "$srcdir/experiments/scaling.sh" '1 x' checks.ini >out 2>err
    [ $? = 2 ] && grep -q "^scaling.sh: 'x': " err
    ok $? "a count that is no number"
    # Without a section of its own, with one that is indented, and with a list of devices over two lines.
    sed '1,/^repeats/d' checks.ini >table/none.ini
    sed 's/^name.*/  &\ndevice = 0,\n    1/; s/^\[experiment\]/  &/; s/^repeats.*/&/' checks.ini >table/two.ini
    EMU_DEVICES=2 RUN_ABLATION=$run DIR=table sh "$srcdir/experiments/scaling.sh" 3 table/none.ini table/two.ini >out 2>err
    [ $? = 1 ] && [ `grep -c '^\(none\|two\): 3: exit status 3: .*device = 2 cannot be used: there are 2' err` = 2 ] &&
        [ `grep -c ' 1 .* % *yes$' out` = 2 ] && [ "`ls table/*scaling* 2>/dev/null`" = "" ]
    ok $? "its devices are the copy's, however the file is written"
fi

# ---- ranks ----

if [ $mpi = 1 ]; then
    for many in 1 2 4; do
        does "checks by $many ranks" 0 " 0 failed" ranks $many -o rank$many.h5 checks.ini
        gone rank$many
        same_dumps "checks by $many ranks: the same" checks.h5 rank$many.h5
        does "runs by $many ranks" 0 "10 runs, 0 diverged" ranks $many -o rruns$many.h5 runs.ini
        gone rruns$many
        same_dumps "runs by $many ranks: the same" runs.h5 rruns$many.h5
    done
    sed 's/^name.*/&\nper_device = 3/' checks.ini >several.ini
    does "several on each by ranks" 2 "per_device = 3: mpirun and srun start a process for each" ranks 2 -o none.h5 several.ini
    ranks 3 -n checks.ini >out 2>err
    [ $? = 0 ] && [ `grep -c '	softmax' out` = 6 ]
    ok $? "a plan is printed once"
    ranks 3 nothing.ini >out 2>err
    [ $? = 2 ] && [ `grep -c 'nothing.ini: cannot be read' err` = 1 ]
    ok $? "an error is printed once"
    # The batch script of README, its srun by mpirun.
    sed -n '/^#!\/bin\/sh$/,/^```$/p' "$srcdir/README.md" | sed '/^```$/,$d' | cmp - "$srcdir/experiments/sweep.sbatch" >out 2>err
    ok $? "README has experiments/sweep.sbatch"
    mkdir bin
    printf '#!/bin/sh\nshift\nASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" exec mpirun -n 3 "$@"\n' >bin/srun
    ln -s "$run" bin/run-ablation
    chmod +x bin/srun
    does "the batch script" 0 " 0 failed" env PATH="$PWD/bin:$PATH" sh "$srcdir/experiments/sweep.sbatch" checks.ini
    does "once more" 0 "10 trials are there already" env PATH="$PWD/bin:$PATH" sh "$srcdir/experiments/sweep.sbatch" checks.ini
    same_dumps "the batch script: the same" checks.h5 dealt.h5
    sed 's/^repeats.*/&\nbackends = gpu32/' checks.ini >gpu.ini
    [ $emulated = 1 ] || does "a backend that is missing" 3 "backend gpu32 is required and missing" ranks 2 -o none.h5 gpu.ini
else
    does "mpirun without MPI" 2 "it was started 4 times, and is built without MPI" env OMPI_COMM_WORLD_SIZE=4 "$run" -n checks.ini
fi

# ---- kills ----

# lead OPTION...: a leader and its workers, in the background: child and workers are the processes.
if [ $emulated = 1 ]; then
    EMU_DEVICES=3
    lead() {
        "$run" "$@" checks.all.ini >cut.out 2>cut.err &
        child=$!
    }
    workers() {
        cat /proc/$child/task/*/children 2>/dev/null
    }
    all=`milliseconds "$run" --force -o time.h5 checks.all.ini`
    echo "# $all ms"
    awk -v n=$((2 * KILLS)) -v seed=$SEED -v all=$all 'BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) printf "%.3f %d\n", (0.05 + 0.9 * rand()) * all / 1000, 1 + int(3 * rand())
    }' >moments
    # A worker: the others make what it had.
    wrong=0 lost=0
    head -$KILLS moments >some
    while read -r moment which; do
        lead --force -o cut.h5
        sleep $moment
        victim=`workers | cut -d' ' -f$which`
        [ -n "$victim" ] && kill -KILL $victim 2>/dev/null
        wait $child
        got=$?
        lost=$((lost + `grep -c 'is lost: ended by signal 9' cut.out`))
        if [ $got != 0 ] || [ -n "`ls cut.h5.part* 2>/dev/null`" ]; then
            wrong=$((wrong + 1))
            sed 's/^/# /' cut.err
        elif [ $without = 0 ]; then
            "$PYTHON" "$srcdir/tests/same.py" checks.h5 cut.h5 >out 2>err || wrong=$((wrong + 1))
        fi
    done <some
    echo "# $lost of $KILLS kills met a worker that was in use"
    [ $wrong = 0 ] && [ $lost -ge $((KILLS / 5)) ]
    ok $? "a worker is killed, $KILLS times: the same file"
    # A signal of its own ends it early: what it ran goes to another, and is no trial that was lost.
    wrong=0
    head -8 moments >some
    while read -r moment which; do
        lead --force -o cut.h5
        sleep $moment
        victim=`workers | cut -d' ' -f$which`
        [ -n "$victim" ] && kill -TERM $victim 2>/dev/null
        wait $child || { wrong=$((wrong + 1)); sed 's/^/# /' cut.out cut.err | grep -e lost -e FAILED; }
        [ $without != 0 ] || "$PYTHON" "$srcdir/tests/same.py" checks.h5 cut.h5 >out 2>err || wrong=$((wrong + 1))
    done <some
    [ $wrong = 0 ]
    ok $? "a worker gets SIGTERM, 8 times: the same file"
    # Names with characters of patterns; what workers left goes, and no other file does.
    : >'c[1]*.h5.part.w0-1-0001'
    : >'c1x.h5.part.w0-1-0001'
    : >'c[1]*.h5.part.wide'
    does "a name that is a pattern" 0 " 0 failed" "$run" -o 'c[1]*.h5' checks.all.ini
    [ ! -e 'c[1]*.h5.part.w0-1-0001' ] && [ -e 'c1x.h5.part.w0-1-0001' ] && [ -e 'c[1]*.h5.part.wide' ]
    ok $? "its workers' files alone are removed"
    : >left.h5.part.w3-77-0002
    does "one process" 0 " 0 failed" "$run" -o left.h5 checks.ini
    gone left
    long=`awk 'BEGIN { while (n++ < 240) printf "n" }'`
    does "a name that is too long for the workers'" 3 "the name is too long for those of its workers" "$run" -o $long.h5 checks.all.ini
    # The rate of a run that confirms, in the table.
    "$run" --force -o runs2.h5 runs.all.ini >out 2>err
    grep -q ' 0\.0*1  *5  *[a-z0-9]*  *6 ' out && ! grep -q ' best  *5 ' out
    ok $? "the rate of a run that confirms"
    (ulimit -f 1500 && exec "$run" --force -o cut.h5 checks.all.ini) >out 2>err
    [ $? = 2 ] && grep -q 'part.w.*: needs' err
    ok $? "a full disk ends the run"
    rm -f cut.h5*
    # The leader: --resume goes on.
    wrong=0 resumed=0 resume=--force
    tail -$KILLS moments >some
    while read -r moment which; do
        lead $resume -o cut.h5
        sleep $moment
        left=`workers`
        kill -KILL $child 2>/dev/null
        wait $child 2>/dev/null
        got=$?
        for worker in $left; do # they end, too
            i=0
            while [ $i -lt 1000 ] && [ -e /proc/$worker/exe ] && readlink /proc/$worker/exe | grep -q run-ablation; do
                sleep 0.01
                i=$((i + 1))
            done
            [ $i -lt 1000 ] || wrong=$((wrong + 1))
        done
        resume=--resume
        if [ $got = 0 ]; then
            [ $without != 0 ] || "$PYTHON" "$srcdir/tests/same.py" checks.h5 cut.h5 >out 2>err || wrong=$((wrong + 1))
            resume=--force
        elif [ $got != 137 ]; then
            wrong=$((wrong + 1))
            sed 's/^/# /' cut.err
        fi
        resumed=$((resumed + `grep -c 'trials are there already' cut.out`))
    done <some
    [ $wrong = 0 ]
    ok $? "the leader is killed, $KILLS times, and its workers end"
    [ $resumed -ge $((KILLS / 10)) ]
    ok $? "--resume went on, $resumed times"
    EMU_DEVICES=2
    does "with fewer devices to its end" 0 " 0 failed" "$run" $resume -o cut.h5 checks.all.ini
    gone cut
    same_dumps "the leader is killed: the same file" checks.h5 cut.h5

    # A function that ends the process: two workers are lost with it, and the others do the rest.
    EMU_DEVICES=4
    echo '#include <stdlib.h>
double tanh(double x) { abort(); return x; }' >end.c
    if [ $sanitized = 0 ] && $CC -shared -fPIC -o end.so end.c; then
        sed -e 's/^device.*/device = all/; s/^repeats.*/&\nchecks = parity/' -e 's/^steps.*/steps = 3/; s/^dtype.*/nonlin = tanh, linear/' \
            checks.all.ini >end.ini
        does "a trial that ends its worker" 4 "FAILED.*: two workers were lost with it; the last ended by signal 6" \
            preloaded end.so "$run" -o end.h5 end.ini
        cat out err | grep -q '7 of 8 trials'
        ok $? "the others are made"
        EMU_DEVICES=2
        sed 's/^device.*/device = 0, 1\nper_device = 2/' end.ini >ends.ini
        does "one of two on a device" 4 "worker [0-3] on device [01] is lost: ended by signal 6" preloaded end.so "$run" -o ends.h5 ends.ini
    fi

    # ---- interrupted ----
    for signal in INT TERM; do
        rm -f late*
        "$run" -o late.h5 checks.all.ini >out 2>err &
        child=$!
        i=0
        while [ $i -lt 500 ] && ! grep -q ref64 out; do
            sleep 0.01
            i=$((i + 1))
        done
        kill -$signal $child
        wait $child
        got=$?
        [ $got = 130 ] || { [ $got = 0 ] && grep -q '10 of 10 trials' out; }
        ok $? "SIG$signal: exit status 130"
        [ $got = 0 ] || does "SIG$signal: it goes on" 0 " 0 failed" "$run" --resume -o late.h5 checks.all.ini
        gone late
        same_dumps "SIG$signal: the same file" checks.h5 late.h5
    done
fi

echo "1..$n"
