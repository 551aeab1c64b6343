/* fault.cc - faults of a kernel, and the runtime's error codes. */
#include "gpu/emulate/internal.h"

#include <stdarg.h>
#include <atomic>
#include <mutex>

using namespace emu;

static const int abort_at_fault = env("EMU_ABORT", 0);

static std::mutex lock;        /* protects the next two */
static std::atomic<cudaError_t> last;
static char detail[1000];      /* of the last fault */
static std::atomic<bool> lost; /* after a trap */

/* ---- faults ---- */

int emu::thread_number(const thread *t)
{
    const block *b = (const block *)t->block;
    return t->idx.x + b->dim.x * (t->idx.y + b->dim.y * t->idx.z);
}

bool emu::report_fault(const thread *t, emu_place here, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    std::lock_guard<std::mutex> hold(lock);
    bool first = last == cudaSuccess;
    if (first) {
        snprintf(detail, sizeof detail, "%s:%d: %s: block (%u,%u,%u) thread (%u,%u,%u): %s",
                 here.file ? here.file : "?", here.line, G->name, t->block->idx.x,
                 t->block->idx.y, t->block->idx.z, t->idx.x, t->idx.y, t->idx.z, text);
        last = cudaErrorLaunchFailure;
        fprintf(stderr, "emulate: %s\n", detail);
    }
    if (abort_at_fault)
        abort();
    return first;
}

[[noreturn]] void emu::abort_launch(void)
{
    G->broken = true;
    stack_switch(((thread *)emu_self)->stack, &G->host, true);
    abort();
}

[[noreturn]] void emu_fault(emu_place here, const char *fmt, ...)
{
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    report_fault((thread *)emu_self, here, "%s", text);
    abort_launch();
}

/* Only this fault is sticky.  On a real device all faults are. */
[[noreturn]] void emu_trap(emu_place here)
{
    lost = true;
    emu_fault(here, "trap");
}

#ifdef __SANITIZE_ADDRESS__
/* Weak, so that a test can define its own. */
extern "C" __attribute__((weak, visibility("default"))) void __asan_on_error(void)
{
    if (emu_self)
        fprintf(stderr, "emulate: %s: block (%u,%u,%u) thread (%u,%u,%u):\n", G->name, blockIdx.x,
                blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}
#endif

/* ---- error codes ---- */

cudaError_t emu::fail(cudaError_t e)
{
    std::lock_guard<std::mutex> hold(lock);
    if (last == cudaSuccess)
        last = e, *detail = 0;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return last; }

/* Unlike on a device, a fault is not sticky unless it is a trap, so that the next test can run. */
cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::mutex> hold(lock);
    cudaError_t e = last;
    if (!lost)
        last = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    case cudaErrorLaunchFailure: return *detail ? detail : "unspecified launch failure";
    default: return "unrecognized error code";
    }
}

const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
