#!/bin/sh
# No kernel of the library spills registers: the compiler's report on each object,
# NAME.ptxas beside it, is read; nothing is compiled again.  TAP on
# stdout, with a table of every kernel's registers and memory.  $srcdir, $NVCC and the
# $OBJECTS of the GPU's archive come from the Makefile.
srcdir=${srcdir:-.}
n=0 all=0

skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

# A line per kernel and architecture: architecture, registers, bytes of static
# shared memory, of stack, of spill stores and spill loads, and its name.  A
# function that was not inlined counts with the kernel before it.
kernels() {
    awk '
        function row() {
            if (name)
                print arch, registers, shared, stack, stores, loads, name
            name = ""
        }
        / Compiling entry function / {
            row()
            split($0, quoted, "\047")
            name = quoted[2]; arch = quoted[4]
            registers = shared = stack = stores = loads = 0
        }
        / bytes stack frame, / { stack += $1; stores += $5; loads += $9 }
        / Used [0-9]+ registers/ {
            registers = $5
            for (i = 6; i <= NF; i++)
                if ($i ~ /^smem/)
                    shared = $(i - 2)
        }
        END { row() }' "$1" | c++filt -p | sed 's/ void / /'
}

# A kernel that spills, or a report without the figures, is a failure.
judge() {
    awk '
        NF < 7 || $2 == 0 { print "cannot read: " $0 }
        $5 + $6 {
            name = $7
            for (i = 8; i <= NF; i++)
                name = name " " $i
            print name " (" $1 "): " $5 " bytes of spill stores, " $6 " of spill loads"
        }'
}

case $NVCC in
'') skip_all "built without CUDA" ;;
emulated) skip_all "the kernels were compiled by $CXX, to be emulated" ;;
esac
printf '# %-6s %9s %7s %6s  %s\n' arch registers shared stack kernel
for object in $OBJECTS; do
    file=${object%.*}
    [ -f "$srcdir/$file.cu" ] || continue
    n=$((n + 1)) found= faults=
    if [ -f $file.ptxas ]; then
        found=`kernels $file.ptxas`
        faults=`echo "$found" | sed '/^$/d' | judge`
        all=$((all + `echo "$found" | grep -c .`))
        echo "$found" | sed '/^$/d' | while read -r arch registers shared stack stores loads name; do
            printf '# %-6s %9s %7s %6s  %s\n' $arch $registers $shared $stack "$name"
        done
    else
        faults="$file.ptxas is not there"
    fi
    if [ -z "$faults" ]; then
        echo "ok $n - $file.cu: no spills in `echo "$found" | grep -c .` kernels"
    else
        echo "not ok $n - $file.cu"
        echo "$faults" | sed 's/^/# /'
    fi
done
n=$((n + 1))
[ $all -gt 0 ] && echo "ok $n - $all kernels in all" || echo "not ok $n - no report has a kernel"
echo "1..$n"
