#!/bin/sh
# What becomes of run-ablation's output: what it replaces and what it keeps, full disks, memory that
# is gone, interruption, and --resume.  TAP on stdout.
# $srcdir, $PYTHON and $H5DUMP come from the Makefile.
. "${srcdir:-.}/tests/runner_tap.sh"
trap 'umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT
wrong_tanh

# ---- the output ----

cat >own.ini <<EOF
[experiment]
repeats = 0
[trial]
op = softmax
rows = 3
columns = 4
EOF
today=`date -u +%Y-%m-%d`
does "an output" 0 ", 0 failed" "$run" own.ini
grep -q "^own.h5  [1-9][0-9.]* KiB, 1 of 1 trials" out
ok $? "its size is in a unit that fits"
does "the same plan once more" 0 "^  replaces own.h5 of $today" "$run" own.ini
"$run" --tsv own.ini >out 2>err && head -1 out | grep -q "^# replaces own.h5 of $today"
ok $? "--tsv says so in a comment"
sed -i 's/^rows.*/rows = 5/' own.ini
cp own.h5 own.was
does "another plan" 0 "^  replaces own.h5 of $today, which holds another plan and becomes own.h5.~1~$" "$run" own.ini
cmp -s own.was own.h5.~1~ && ! cmp -s own.was own.h5
ok $? "the dump of the plan before is kept"
sed -i 's/^rows.*/rows = 6/' own.ini
"$run" --tsv own.ini >out 2>err && head -1 out | grep -q "^# replaces own.h5 .* becomes own.h5.~2~$"
ok $? "--tsv says so in a comment, and the next name is taken"
sed -i 's/^rows.*/rows = 5/' own.ini
does "another plan, by force" 0 "^  replaces own.h5 of $today$" "$run" --force own.ini
cmp -s own.was own.h5.~1~ && [ -s own.h5.~2~ ] && [ ! -e own.h5.~3~ ]
ok $? "that is not kept, and those that are stay"
rm own.h5.~2~
cp own.ini copy.ini
ln own.ini hard.h5
ln -s own.ini soft.h5
for name in own.ini ./own.ini "$dir/own.ini" hard.h5 soft.h5; do
    does "-o of the ini, as $name" 2 "is the experiment's own ini; write elsewhere with -o$" "$run" --force -o "$name" own.ini
done
echo "the user's text" >notes.txt
cp notes.txt notes.was
does "-o of a text" 2 "notes.txt: is no dump .*; move it away, or write elsewhere with -o$" "$run" --force -o notes.txt own.ini
does "a text as input and output" 2 "notes.txt: is the input of trial 1" "$run" --force -o notes.txt \
    -t 'e74 steps=3 batch=1 n_state=2 dim=2 input=text file=notes.txt'
cmp -s own.ini copy.ini && cmp -s notes.txt notes.was
ok $? "they stay as they were"
mkfifo fifo
for name in . "$dir" /dev/null fifo; do
    does "-o $name" 2 "is a folder\|is no regular file" "$run" -o "$name" own.ini
done
does "-o ''" 2 "the name of the output is empty" "$run" -o '' own.ini
does "-o -" 2 "^run-ablation: -: a dump cannot be written to standard output; give a file, ./- for" \
    "$run" -o - own.ini
sed 's/^repeats.*/&\noutput = -/' own.ini >minus.ini
does "output = -" 2 "-: a dump cannot be written to standard output" "$run" --force minus.ini
[ ! -e ./- ] && [ ! -e ./-.part ]
ok $? "no file of that name is made"
does "-o ./-" 0 ", 0 failed" "$run" -o ./- own.ini
[ -s ./- ]
ok $? "is such a file"
ln -s behind.h5 link.h5
does "-o of a link" 0 ", 0 failed" "$run" -o link.h5 own.ini
[ -h link.h5 ] && [ -s behind.h5 ] && [ ! -h behind.h5 ]
ok $? "is written through the link"
does "words" 0 ", 0 failed" "$run" -t 'softmax rows=2 columns=2 repeats=0'
does "other words replace trial.h5" 0 "replaces trial.h5" "$run" -t 'softmax rows=3 columns=2 repeats=0'
does "but keep it if it is named" 0 "which holds another plan and becomes trial.h5.~1~$" "$run" -o trial.h5 \
    -t 'softmax rows=2 columns=2 repeats=0'
if [ -n "$PYTHON" ]; then
    "$PYTHON" - 2>err <<EOF
import h5py, numpy
h5py.File("model.h5", "w")["x"] = numpy.ones((3, 4))
h5py.File("lzf.h5", "w").create_dataset("x", data=numpy.ones((3, 4)), chunks=(3, 4), compression="lzf")
EOF
    sed -e 's/^rows.*/rows = 3/' -e '$a input = hdf5\nfile = model.h5' own.ini >model.ini
    cp model.h5 model.was
    does "tensors that the output would replace" 2 "model.h5: is the input of trial 1" "$run" model.ini
    does "by another name" 2 "model.h5: is the input" "$run" -o "../`basename "$dir"`/model.h5" model.ini
    does "another program's HDF5 file" 2 "was not written by this program" "$run" --force -o model.h5 own.ini
    cmp -s model.h5 model.was
    ok $? "they stay as they were"
    does "a filter that is not there" 2 "needs the filter 'lzf'" "$run" \
        -t 'softmax rows=3 columns=4 input=hdf5 file=lzf.h5 repeats=0'
    rm -f model.h5.part
else
    for name in "tensors that the output would replace" "by another name" \
        "another program's HDF5 file" "they stay as they were" "a filter that is not there"; do
        skip "$name" "no Python with numpy and h5py"
    done
fi

# ---- descriptors, and trials that cannot be run ----

rm -f own.h5
"$run" own.ini >&- 2>&- <&-
ok $? "all descriptors closed"
[ -s own.h5 ] && ! grep -q 'checks, ' own.h5
ok $? "the report is not in the file"
does "which is whole" 0 "1 trials are there already" "$run" --resume own.ini
if [ -c /dev/full ]; then
    "$run" own.ini >/dev/full 2>err
    [ $? = 2 ] && grep -q "standard output: No space" err
    ok $? "a full standard output is an error, a closed one is not"
else
    skip "a full standard output is an error, a closed one is not" "no /dev/full"
fi
# 6000 x 4000 elements in double are 183 MiB.
cat >memory.ini <<EOF
[experiment]
backends = ref64
checks = none
repeats = 0
[trial]
op = silu
rows = 3, 6000
dim = 4000
EOF
if [ -n "$PYTHON" ]; then
    "$PYTHON" -c 'import h5py, numpy
h5py.File("k.h5", "w")["k"] = numpy.cos(numpy.arange(24.)).reshape(4, 2, 1, 3)' 2>err
fi
cat >both.ini <<EOF
[experiment]
repeats = 0
[trial]
op = e74_cell
steps = 4
batch = 2
n_state = 3
input = hdf5
file = k.h5
[trial]
op = silu
rows = 6000
dim = 4000
EOF
# Memory that is gone when a trial runs, though it was there for the plan: more than 100 MiB at once.
cat >nomem.c <<'EOF'
#include <stddef.h>
void *__libc_malloc(size_t n);
void *malloc(size_t n)
{
    return n > 100 << 20 ? NULL : __libc_malloc(n);
}
void *__libc_calloc(size_t m, size_t n);
void *calloc(size_t m, size_t n)
{
    return m * n > 100 << 20 ? NULL : __libc_calloc(m, n);
}
EOF
$CC -shared -fPIC -o nomem.so nomem.c || exit 1
limited() {
    (
        export ASAN_OPTIONS="$ASAN_OPTIONS:max_allocation_size_mb=100:allocator_may_return_null=1"
        test "${CFLAGS#*-fsanitize=address}" != "$CFLAGS" || \
            export LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD=nomem.so
        "$@"
    )
}
if limited "$run" own.ini >/dev/null 2>&1; then
    does "a trial without memory" 4 "FAILED: silu: no memory" limited "$run" memory.ini
    [ -f memory.h5.part ] && [ ! -f memory.h5 ]
    ok $? "the other one is in the part"
    does "which is not thrown away" 2 "memory.h5.part: holds 1 finished trial, .*; go on with --resume, or begin again with --force$" \
        "$run" memory.ini
    does "--resume runs the one that is missing" 0 "1 trials are there already" "$run" --resume memory.ini
else
    for name in "a trial without memory" "the other one is in the part" "which is not thrown away" \
        "--resume runs the one that is missing"; do
        skip "$name" "memory cannot be limited so far here"
    done
fi
if [ -f k.h5 ] && [ -f memory.h5 ]; then
    does "a failed check is worse" 1 "FAILED: silu: no memory" limited wrongly both.ini
else
    skip "a failed check is worse" "no Python with numpy and h5py, or memory cannot be limited"
fi

# ---- interruption ----

# Everything below /trial, as text, less where in the file an axis refers to.
content() {
    "$H5DUMP" -g /trial "$1" | sed -e 1d -e 's/DATASET [0-9][0-9]* /DATASET /'
}
same_content() {
    content "$1" >a.txt && content "$2" >b.txt && cmp a.txt b.txt >out 2>err
}

cat >long.ini <<EOF
[experiment]
checks = differences
repeats = 0
[trial]
op = e74
state = full
nonlin = tanh, linear, rmsnorm, frobnorm
seed = 1, 2, 3
steps = 48
batch = 3
n_state = 20
dim = 32
EOF
"$run" -o whole.h5 long.ini >out 2>err
ok $? "a run that is not interrupted"

# interrupt SIGNAL STATUS: stop a run in the middle, check the part, resume.
interrupt() {
    rm -f cut.h5 cut.h5.part
    : >cut.out
    "$run" -o cut.h5 long.ini >cut.out 2>err &
    child=$!
    while [ `grep -c ref64 cut.out` -lt 3 ] && kill -0 $child 2>/dev/null; do
        sleep 0.05
    done
    live=2 # unless it ends before it is looked at
    if [ -n "$H5DUMP" ] && kill -STOP $child 2>/dev/null; then
        HDF5_USE_FILE_LOCKING=FALSE "$H5DUMP" -d /trial/0001/ref64/out cut.h5.part >out 2>&1
        live=$?
        kill -CONT $child
    fi
    kill -$1 $child
    wait $child 2>/dev/null
    got=$?
    [ $got = $2 ]
    ok $? "$1 ends it with $2"
    [ ! -f cut.h5 ] && [ -f cut.h5.part ]
    ok $? "$1 leaves a part"
    if [ -z "$H5DUMP" ]; then
        skip "before $1 the finished trials are readable, without a lock" "no h5dump"
        skip "after $1 the finished trials are readable" "no h5dump"
        skip "--resume after $1 completes the file to the same content" "no h5dump"
        return
    fi
    ok $live "before $1 the finished trials are readable, without a lock"
    "$H5DUMP" -d /trial/0003/ref64/out cut.h5.part >out 2>err
    ok $? "after $1 the finished trials are readable"
    "$run" --resume -o cut.h5 long.ini >out 2>err && grep -q 'are there already' out &&
        same_content whole.h5 cut.h5
    ok $? "--resume after $1 completes the file to the same content"
}
interrupt INT 130
interrupt KILL 137

if [ -n "$H5DUMP" ]; then
    "$run" -o again.h5 long.ini >out 2>err && same_content whole.h5 again.h5
    ok $? "two runs give the same datasets, bit for bit"
fi
# A write limit is a full disk: in blocks of 512 bytes.
rm -f cut.h5 cut.h5.part
(ulimit -f 8 && exec "$run" -o cut.h5 long.ini) >out 2>err
[ $? = 2 ] && grep -q 'cut.h5.part: ' err && ! ls | grep -q '^cut\.h5'
ok $? "a disk that is full from the start is an error, and no file is left"
(ulimit -f 5000 && exec "$run" -o cut.h5 long.ini) >out 2>err
[ $? = 2 ] && grep -q 'cut.h5.part: needs' err
ok $? "a full disk is an error, with exit status 2"
if [ -n "$H5DUMP" ]; then
    "$H5DUMP" -d /trial/0001/ref64/out cut.h5.part >out 2>err
    ok $? "after a full disk the finished trials are readable"
    "$run" --resume -o cut.h5 long.ini >out 2>err && same_content whole.h5 cut.h5
    ok $? "--resume after a full disk completes the file to the same content"
fi
# A disk of 64 KiB, with as many bytes free as are named; nothing but one sentence is said, before anything
# runs.  Its size is the one that -n says.
on_small() {
    mkdir -p small
    mount -t tmpfs -o size=64k none small 2>/dev/null && head -c $((65536 - $1)) /dev/zero >small/full
}
# refuses FREE ADVICE OPTION...: with no file left, and that many bytes free.
refuses() {
    free=$1 advice=$2
    shift 2
    "$run" -n -o small/cut.h5 "$@" >out 2>err || return 1
    says=`sed -n 's/^small.cut.h5: .* up to \([0-9.]* [KMG]*i*B\).*/\1/p' err`
    "$run" -o small/cut.h5 "$@" >out 2>err
    [ $? = 2 ] && [ -n "$says" ] && [ ! -s out ] && [ `wc -l <err` = 1 ] && [ "`ls small`" = full ] &&
        grep -q "small/cut.h5: needs up to $says, and 1.0 MiB to spare while it is written; \
$free are free there${advice:+; $advice}; write elsewhere with -o$" err
}
no_space() {
    name="a disk with $1 bytes free is one sentence, with exit status 2, and no file is left"
    if ! on_small $1; then
        skip "$name" "a file system cannot be mounted here"
        return
    fi
    refuses "$2" "set save = outputs or none" long.ini
    ok $? "$name"
    refuses "$2" "set save = none" -t 'softmax rows=9 columns=9 save=outputs'
    ok $? "of settings by which it would be smaller those are said that are not set"
    refuses "$2" "" -t 'softmax rows=9 columns=9 save=none'
    ok $? "none, where the smallest is"
    refuses "$2" "" --inputs 'softmax rows=9 columns=9'
    ok $? "and none for --inputs, where they have no effect"
    cp own.was small/full
    "$run" --force -o small/full long.ini >out 2>err
    [ $? = 2 ] && grep -q 'needs up to' err && cmp -s own.was small/full && [ "`ls small`" = full ]
    ok $? "and a dump that is there stays, also where it may be replaced"
    umount small
}
no_space 0 '0 bytes'
no_space 4096 '4.0 KiB'
no_space 65536 '64.0 KiB'
cp whole.h5 other.h5.part
does "a part is not thrown away" 2 "other.h5.part: holds 12 finished trials, .*; go on with --resume" \
    "$run" -o other.h5 long.ini
sed -i 's/^repeats.*/repeats = 1/' long.ini
does "--resume with another key" 2 "another plan: repeats = 0, not 1" "$run" --resume -o other.h5 long.ini
sed -i 's/^dim.*/dim = 33/' long.ini
does "--resume of another plan" 2 "another plan" "$run" --resume -o other.h5 long.ini

echo "1..$n"
