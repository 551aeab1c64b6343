#!/bin/sh
#     mps.sh PID
#     mps.sh --ended
#
# Start NVIDIA's Multi-Process Service (MPS) for the suites that make, process PID, runs side by
# side, unless that is done; print the directory of its pipes.  It ends when PID has ended, and --ended waits
# for that.  Nothing is printed where there is no MPS, or where a program of ours does not find the GPU by
# way of it.
#
# Without it the kernels of one process alone run at a time, in time slices of milliseconds: six parts of
# tests/parity side by side take over 80 s on an H100, and 11 s with it, as the longest takes alone.  But a
# kernel that ends in a fault ends all the suites beside: `make check MPS=no` shows which it was.
PATH=$PATH:/usr/local/nvidia/bin
dir=${TMPDIR:-/tmp}/ablate-mps.$1
export CUDA_MPS_PIPE_DIRECTORY="$dir" CUDA_MPS_LOG_DIRECTORY="$dir"

# Can a program use the GPU in this way?
serves() {
    cat >"$dir/probe.ini" <<'END'
[experiment]
name = probe
backends = ref64, gpu32
checks = none
save = none
repeats = 0
[trial]
op = silu
rows = 1
dim = 4
END
    nvidia-cuda-mps-control -d && ./run-ablation -o "$dir/probe.h5" "$dir/probe.ini"
}

# once COMMAND...: wait until it succeeds, for 30 s at most.
once() {
    tries=300
    until "$@" || test $tries = 0; do
        sleep 0.1
        tries=$((tries - 1))
    done
}

none_left() {
    ! ls -d "${TMPDIR:-/tmp}"/ablate-mps.* >/dev/null 2>&1
}

if test "$1" = --ended; then
    once none_left
    exit 0
fi
test -e /dev/nvidiactl && command -v nvidia-cuda-mps-control >/dev/null || exit 0
if mkdir -m 700 "$dir" 2>/dev/null; then
    {
        if serves; then
            echo yes >"$dir/serves.new"
        else
            echo quit | nvidia-cuda-mps-control
            echo no >"$dir/serves.new"
        fi
        mv "$dir/serves.new" "$dir/serves"
    } >"$dir/start.log" 2>&1
    # (In a session of its own, so that Ctrl-C does not reach it.)
    setsid sh -c 'while kill -0 "$1" 2>/dev/null; do sleep 1; done
        test "$(cat "$2/serves")" = no || echo quit | nvidia-cuda-mps-control
        rm -rf "$2"' sh "$1" "$dir" </dev/null >/dev/null 2>&1 &
fi
once test -e "$dir/serves"
test "$(cat "$dir/serves" 2>/dev/null)" != yes || echo "$dir"
