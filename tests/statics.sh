#!/bin/sh
# Which variables of the library can be written, so that two contexts could meet in them?  Those of a
# thread are its own; the others must be known here, with the reason.  TAP on stdout.
lib=libablate_all.a
list=`mktemp "${TMPDIR:-/tmp}/statics.XXXXXX"` || exit 1
trap 'rm -f "$list"' EXIT

# Why may this variable be there?  Nothing, if it may not.
reason() {
    case $1 in
    first) echo "the process that used CUDA first; a fork compares with it" ;;
    all) echo "the contexts of the library's own calls, under its lock" ;;
    *idle | *idle_lock) echo "handles of cuBLAS that no pass has, under a lock" ;;
    cublas) echo "the functions of cuBLAS, which is opened once" ;;
    once | unprepared) echo "pthread_once: the library prepares for a fork" ;;
    plain) echo "C's locale, which is made once" ;;
    shown) echo "the progress bar on the program's terminal" ;;
    *encoder) echo "a function of the driver, which is looked for once" ;;
    *_key) echo "the name of shared memory in the emulator; its address alone counts" ;;
    cells | cells_lock) echo "the operations of training that were made, under a lock" ;;
    programs | programs_lock) echo "the programs that the process read, under a lock" ;;
    calls) echo "the lock by which calls of several threads wait for each other" ;;
    *) case $2 in
       libgpu_a-*) echo "the emulator's" ;;
       esac ;;
    esac
}

if ! objdump -t $lib >"$list" 2>/dev/null; then
    echo "1..0 # SKIP there is no objdump that reads $lib"
    exit 0
fi
# Variables in .bss, .data or common; .data.rel.ro is constant, .tbss and .tdata are of a thread; and
# nvcc's own, by which kernels are registered before main().
awk '/^[^ ]*\.o: / { sub(/:$/, "", $1); file = $1 }
    $0 ~ / O (\.bss|\.data|\*COM\*)/ && $0 !~ / O \.data\.rel\.ro/ { print $NF, file }' "$list" |
sed -e 's/\.[0-9]* / /' |
sed -e 's/^_ZZ.*E[0-9]*\([a-z_]*_key\) /\1 /' -e 's/^_ZZ.*E\([0-9]*\)\([a-z_]*\) /\2 /' |
grep -v -e '^DW\.ref' -e '^__fatbin' -e '^_ZL[0-9]*__' -e '^_ZZ*L*[0-9]*__nv' -e '^_ZL20__cuda' -e '^_ZGV' -e '^__' |
sort -u | {
    n=0
    while read -r name file; do
        why=`reason "$name" "$file"`
        n=$((n + 1))
        if [ -n "$why" ]; then
            echo "ok $n - $name in $file: $why"
        else
            echo "not ok $n - $name in $file can be written, and two contexts meet in it"
        fi
    done
    n=$((n + 1))
    if [ $n -gt 3 ]; then
        echo "ok $n - variables are found"
    else
        echo "not ok $n - hardly any variable is found: the list is not read"
    fi
    echo "1..$n"
}
