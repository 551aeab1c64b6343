#!/bin/sh
# Unfinished runs of training: killed at random moments, interrupted, on a full disk, and taken up again, they end in
# the datasets of a run that was not disturbed.  TAP on stdout.  $srcdir, $PYTHON and $CC come from the Makefile.
test -n "$TMPDIR" || ! test -w /dev/shm || export TMPDIR=/dev/shm # where syncing takes no time
. "${srcdir:-.}/tests/runner_tap.sh"
KILLS=50 SEED=7
case $CFLAGS in *-fsanitize=*) KILLS=12 ;; esac # where each start takes four times as long
# A process that is killed takes the GPU from others that share it by MPS; there is none here.
export CUDA_VISIBLE_DEVICES=
# How long the program starts (with a GPU: seconds, when others start as well) and how long it trains are measured, so that
# the moments lie within the runs on any machine.

# plan UPDATES EVERY WIDTH: four runs.
plan() {
    cat <<INI
[experiment]
name = four
measure = train
save = final
backends = ref32
[model z]
mixer = e74
proj = full
z_mod = row
n_state = 8
width = $3
[model none]
mixer = none
width = $3
[task bits]
task = parity
length = 12
[task words]
task = word
length = 8
[train]
updates = $1
batch = 16
eval_rows = 64
lr = 1e-2
checkpoint_every = $2
[trial]
model = z, none
task = bits, words
INI
}
plan 800 0.02 16 >four.ini
plan 1 0.02 16 >start.ini
plan 4000 0 16 >late.ini
# One, of 5 MB.
plan 20 0.001 256 | sed -e '/^.task words/,/^length/d' -e '/^.model z/,/^width/d' -e 's/^task = bits, words/task = bits/' \
    -e 's/^model = .*/model = none/' -e 's/^save.*/save = none/' -e 's/^width.*/&\nmlp = 512/' -e 's/^batch.*/batch = 4/' \
    -e 's/^eval_rows.*/eval_rows = 4/' >large.ini

"$PYTHON" -c 'import h5py' 2>err
without=$?
may_differ="checkpoint_every line resumed_anyway"
# await FILE CHILD: until the file is there, or the process is gone.
await() {
    while [ ! -e "$1" ] && kill -0 "$2" 2>/dev/null; do
        sleep 0.01
    done
}
# asleep MILLISECONDS
asleep() {
    sleep `awk -v ms=$1 'BEGIN { printf "%.3f", ms / 1000 }'`
}
# gone NAME: no state is left of it.
gone() {
    [ ! -e "$1.state" ] && [ ! -e "$1.h5.part" ] && [ -s "$1.h5" ]
    ok $? "nothing is left of the state of $1.h5"
}

does "a run that is not disturbed" 0 "4 runs, 0 diverged" "$run" -o whole.h5 four.ini
gone whole

# ---- killed ----

# Kill it at random moments, go on, and begin again when it is done.  A kill that came before there was anything to go on
# with makes the next ones later.
first=`milliseconds "$run" --force -o start.h5 start.ini`
first=`milliseconds "$run" --force -o start.h5 start.ini`
all=`milliseconds "$run" --force -o start.h5 four.ini`
echo "# $first ms for one update of each run, $all ms for all"
awk -v n=$KILLS -v seed=$SEED -v all=$((all - first)) 'BEGIN { srand(seed); for (i = 0; i < 4 * n; i++) print int(all * rand() / 5) }' >moments
kills=0 files=0 taken=0 early=0
resume=
later=$((first / 2))
while read -r moment && [ $kills -lt $KILLS ]; do
    "$run" $resume -o cut.h5 four.ini >cut.out 2>cut.err &
    child=$!
    asleep $((later + moment))
    kill -KILL $child 2>/dev/null && kills=$((kills + 1))
    wait $child 2>/dev/null
    got=$?
    went=`grep -c "goes on at update" cut.err`
    taken=$((taken + went))
    resume=--resume
    if [ $got = 0 ]; then
        files=$((files + 1))
        mv cut.h5 done$files.h5
        [ -e cut.state ] && early=1
        resume=
    elif [ $got != 137 ]; then
        early=1
        sed 's/^/# /' cut.err
    elif [ $went = 0 ] && ! ls cut.state/* >/dev/null 2>&1; then
        later=$((later + first / 10 + 1))
    fi
done <moments
[ $kills = $KILLS ] && [ $early = 0 ]
ok $? "killed $KILLS times, and it goes on each time"
echo "# $taken runs went on from a checkpoint, $files experiments were done meanwhile"
[ $taken -ge $((KILLS * 3 / 10)) ]
ok $? "from checkpoints, mostly"
does "and to its end" 0 "4 of 4 trials" "$run" $resume -o cut.h5 four.ini
gone cut
same_dumps "killed $KILLS times: the datasets of a run that is not disturbed" whole.h5 cut.h5
while [ $files -gt 0 ]; do
    same_dumps "the same of those that were done meanwhile" whole.h5 done$files.h5
    files=$((files - 1))
done

# ---- interrupted ----

does "a longer one" 0 "4 runs, 0 diverged" "$run" -o long.h5 late.ini

# signalled NAME SIGNAL INI CONDITION...: the signal is sent, each time later, until it meets the runs: until CONDITION holds.
# Before them the program ends as well.
signalled() {
    file=$1 signal=$2 ini=$3
    shift 3
    moment=$((first / 2))
    until=$((`date +%s` + 300))
    while [ `date +%s` -lt $until ]; do
        rm -rf $file.h5* $file.state
        "$run" -o $file.h5 $ini >out 2>err &
        child=$!
        await $file.h5.part $child
        asleep $moment
        [ ! -e $file.state ]
        before=$?
        kill -$signal $child
        wait $child
        got=$?
        "$@" && return
        moment=$((moment + moment / 4 + 1))
    done
}
checkpoint_left() {
    [ -e late.state/0001 ]
}
for signal in INT TERM; do
    signalled late $signal late.ini checkpoint_left
    ok $before "checkpoint_every = 0: there is none before SIG$signal"
    [ $got = 130 ] && [ -e late.state/0001 ] && ! ls late.state | grep -q '[.]'
    ok $? "SIG$signal: exit status 130, and a checkpoint"
    does "begun again it would be lost" 2 "late.state: holds [1-4] unfinished runs*, which would be lost; go on with --resume, or begin again with --force" \
        "$run" -o late.h5 late.ini
    does "SIG$signal: it goes on" 0 "late.state/0001: the run goes on at update [1-9][0-9]* of 4000$" "$run" --resume -o late.h5 late.ini
    gone late
    same_dumps "SIG$signal: the same datasets" long.h5 late.h5
done

# ---- another run ----

# leave OPTION...: an interrupted run of four.ini, whose checkpoint is there, as left.h5.
leave() {
    rm -rf left*
    "$run" -o left.h5 four.ini >out 2>err &
    child=$!
    await left.state/0001 $child
    kill -INT $child
    wait $child
}
leave
cp -r left.state left.was
sed 's/^lr.*/lr = 2e-2/' four.ini >rate.ini
sed 's/^name.*/name = other/' rate.ini >other.ini
sed 's/^backends.*/backends = ref64/' four.ini >ref64.ini
does "another ini" 2 "left.h5.part: holds another plan: 'four', not 'other'" "$run" --resume -o left.h5 other.ini
does "another rate" 2 "left.h5.part: holds another plan: trial 1 is" "$run" --resume -o left.h5 rate.ini
does "another backend" 2 "left.h5.part: holds another plan: backends = ref32, not ref64" "$run" --resume -o left.h5 ref64.ini
rm left.h5.part
does "another ini, without a part: its name" 2 "left.state/0001: is of another plan: 'four', not 'other'; take it with --resume=anyway, or move it away" \
    "$run" --resume -o left.h5 other.ini
does "another line" 2 "left.state/0001: is of another line: '.*lr=0.01 .*', not '.*lr=0.02 .*; take it" "$run" --resume -o left.h5 rate.ini
does "another backend, without a part" 2 "left.state/0001: is of another backend: 'ref32', not 'ref64'; take it" "$run" --resume -o left.h5 ref64.ini
does "not begun again for another plan" 2 "left.state/0001: is of an unfinished run of another plan, 'four'" "$run" --force -o left.h5 other.ini
diff -r left.state left.was >out 2>&1
ok $? "they stay as they are"
does "another line, anyway" 0 "goes on at update [0-9]* of 800, though that is of another line" "$run" --resume=anyway -o left.h5 rate.ini
if [ $without = 0 ]; then
    does "which is marked in the dump" 0 "^line$" "$PYTHON" -c 'import h5py
print(h5py.File("left.h5")["trial/0001"].attrs["resumed_anyway"])'
else
    skip "which is marked in the dump" "no h5py"
fi
leave
does "an interrupted run of another plan without finished runs, anyway" 0 "though that is of another plan, line" "$run" --resume=anyway -o left.h5 other.ini
leave
does "begun again with --force" 0 "4 runs, 0 diverged" "$run" --force -o left.h5 four.ini
if grep -q "goes on" out err; then
    ok 1 "from its beginning"
else
    ok 0 "from its beginning"
fi
gone left
does "--resume=HOW" 2 "^run-ablation: --resume=often: must be anyway, or nothing" "$run" --resume=often four.ini
does "--resume=anyway of checks" 2 "only measure = train has checkpoints" "$run" --resume=anyway -t 'softmax rows=2 columns=2'
leave
head -c 200 left.state/0001 >cut.bin
cp cut.bin left.state/0001
does "a damaged one" 0 "left.state/0001: is damaged or cut off: .*; the run" "$run" --resume -o left.h5 four.ini
gone left
same_dumps "a damaged one: the same datasets" whole.h5 left.h5

# ---- runs that confirm ----

sed -e 's/^lr.*/lr = 1e-3\nseed = 1\nconfirm = 2/; s/^updates.*/updates = 20000/; s/^model = z, none/model = none/' -e '/^.model z/,/^width/d' \
    -e '/^.task words/,/^length/d' -e 's/^task = bits, words/task = bits/' four.ini >confirm.ini
sed 's/^lr.*/lr = 1e-1/' confirm.ini >rate.ini
"$run" -o best.h5 confirm.ini >out 2>err &
child=$!
i=0
while [ $i -lt 600 ] && [ ! -s best.state/0002 ] && kill -0 $child 2>/dev/null; do
    sleep 0.05
    i=$((i + 1))
done
kill -INT $child
wait $child
[ -s best.state/0002 ]
ok $? "a run that confirms has a checkpoint"
rm -f best.h5.part
does "which is not taken at another rate" 4 "best.state/0002: is of another line" "$run" --resume -o best.h5 rate.ini

# ---- side by side ----

# Each writes its first checkpoint as soon as it can: none is lost.
lost=0
i=0
while [ $i -lt 10 ]; do
    OMP_NUM_THREADS=4 "$run" --force -o race.h5 four.ini >out 2>err
    grep -q "cannot be written" out err && lost=$((lost + 1)) && cp err lost.err
    i=$((i + 1))
done
[ $lost = 0 ]
ok $? "no checkpoint of runs side by side is lost"

# ---- a full disk ----

# A limit of what a file may have is a full disk: in blocks of 512 bytes.
"$run" -o large.h5 large.ini >out 2>err
gone large
(ulimit -f 6000 && exec "$run" -o full.h5 large.ini) >out 2>err
[ $? = 0 ] && [ "`grep -c 'full.state/0001: cannot be written: .*; the run goes on without that checkpoint' err`" = 1 ]
ok $? "a checkpoint that a full disk does not take is one line, and the run goes on"
gone full
sed -i 's/^updates.*/updates = 100000/' large.ini
cannot_be_written() {
    grep -q "full.state/0001: cannot be written: [^;]*$" err
}
ulimit -f 6000
signalled full INT large.ini cannot_be_written
[ $got = 130 ] && cannot_be_written
ok $? "at SIGINT that is the error"

echo "1..$n"
