/* The GPU as a backend: its memory, passes that are recorded and replayed, and
 * its state after an error that CUDA does not recover from.  The last test loses the device, so it is
 * a program of its own. */
#include "gpu/gpu.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/call/run.h"
#include "common/judge/check.h"
#include "common/run/trial.h"
#include "tests/here.h"
#include "tests/tap.h"
}

static const struct backend *const gpu = judged_backend(0);

static void memory(void)
{
    struct context *const x = context_of(here(), gpu);
    const int64_t size = 8 << 20;
    ok(gpu->machine->memory.reserve(x, size) == 0, "memory can be reserved");
    int64_t before = gpu->machine->memory.left(x);
    char *a = (char *)gpu->machine->memory.alloc(x, 1000), *b = (char *)gpu->machine->memory.alloc(x, 1000), *big;

    ok(a && b && b - a == 1024 && (uintptr_t)a % 256 == 0, "tensors are cut from it, aligned");
    if (getenv("CHECK_GPU")) /* when no other program allocates or frees any meanwhile */
        ok(before - gpu->machine->memory.left(x) == 2048, "free memory becomes less by as much");
    big = (char *)gpu->machine->memory.alloc(x, size);
    ok(big && (big < a || big >= a + size), "a tensor that does not fit has an allocation of its own");
    gpu->machine->memory.free(x, big);
    gpu->machine->memory.free(x, a);
    gpu->machine->memory.free(x, b);
    ok(gpu->machine->memory.alloc(x, size) == a, "given back, it is whole again");
    gpu->machine->memory.free(x, a);
    ok(gpu->machine->memory.reserve(x, size / 2) == 0 && gpu->machine->memory.alloc(x, 1) == a, "and kept for the next");
    gpu->machine->memory.free(x, a);
    ok(gpu->machine->memory.alloc(x, (size_t)1 << 60) == NULL && cudaGetLastError() == cudaSuccess,
       "an allocation that fails leaves no error behind");
    ok(gpu->machine->memory.reserve(x, (int64_t)1 << 60) != 0 && cudaGetLastError() == cudaSuccess,
       "nor does a reservation");
}

static void devices(void)
{
    const char *why = context_use(here(), gpu, 1000);
    ok(why != NULL, "device 1000: %s", why);
}

/* ---- passes recorded and replayed ---- */

/* A timed run has the same results as an untimed one, in the first case that
 * the kernel takes, which ends the search. */
static int timed_case(const struct call *f, void *data)
{
    const struct op *o = f->op;
    struct run *c = (struct run *)data;
    c->call = call_here(f, c->call.backend, c->call.kernel);
    if (impl_declines(&c->call))
        return 0;
    struct tensors *inputs = tensors_new(f);
    if (!inputs)
        return -1;
    tensors_draw(inputs, f, 1, 1);
    c->repeats = 0;
    struct tensors *once = run_copy(c, inputs, NULL);
    c->repeats = 2;
    struct tensors *timed = once ? run_copy(c, inputs, NULL) : NULL;
    int good = timed && tensors_same(f, once, timed);
    if (!ok(good, "%s: %s %s is timed, with the same results", o->name, c->call.backend->name,
            c->call.kernel->name))
        printf("# %s\n", timed ? "other results" : err_text());
    tensors_free(timed);
    tensors_free(once);
    tensors_free(inputs);
    return 1;
}

static int nothing(const struct call *)
{
    return 0;
}

static int allocates(const struct call *)
{
    void *p = NULL;
    CUDA(cudaMalloc(&p, 1 << 20));
    return cudaFree(p);
}

static void refused(int (*pass)(const struct call *), const char *what)
{
    const struct impl kernel = {.name = "refused", .type = F32, .idea = "", .pass = {pass, pass}};
    struct call f = {};
    void *recorded = NULL;
    f.backend = gpu, f.kernel = &kernel, f.context = context_of(here(), gpu);
    const struct pass_of forward = {&f, FORWARD};
    int e = gpu->machine->timing.record(&forward, 1, &recorded);
    ok(e && !recorded, "a pass that %s cannot be recorded: %s", what, gpu->machine->strerror(e));
    ok(!backend_unavailable(here(), gpu), "the device is there after it");
}

/* (tests/parity tests that each kernel takes a case.) */
static void recorded(void)
{
    const struct impl *k;
    for (int g = 0; judged_backend(g); g++)
        for (int i = 0; i < N_OPS; i++)
            for (int n = 0; (k = op_kernel(ops[i], judged_backend(g), n)); n++) {
                struct run c = {};
                c.call.backend = judged_backend(g), c.call.kernel = k;
                if (cases_each(ops[i], ops[i]->cases, timed_case, &c) < 0)
                    ok(0, "%s: %s", ops[i]->name, err_text());
            }
    if (gpu->machine->timing.record) {
        refused(nothing, "starts nothing");
        refused(allocates, "allocates");
    } else {
        ok(!gpu->machine->timing.replay && !gpu->machine->timing.forget, "passes are neither recorded nor replayed");
    }
}

/* ---- a kernel that ends in a trap ---- */

static __global__ void trap(void)
{
    __trap();
}

static int trapped(const struct call *f)
{
    trap<<<1, 32, 0, gpu_stream(f)>>>();
    return cudaGetLastError();
}

static void lost(void)
{
    static const struct impl kernel = {.name = "trap", .type = F32, .idea = "", .pass = {trapped, trapped}};
    static const volatile int go_on = 0;
    trial_step *const quiet = [](const char *, void *) {};
    struct experiment x;
    struct result r;

    if (plan_words("diag_delta steps=3 batch=2 n_state=4 repeats=0", &x, stderr)) {
        ok(0, "the plan can be read");
        return;
    }
    x.contexts = here();
    const struct trial *t = &x.trial[0];
    ok(trial_run(&x, t, &go_on, quiet, NULL, &r) == 0 && r.n_ran == 3 && !r.skipped,
       "a trial runs on the GPU");
    struct run c = {};
    c.call = call_here(&t->call, gpu, &kernel);
    ok(run_op(&c, r.inputs, NULL) != 0 && strstr(err_text(), "kernel trap"), "%s", err_text());
    result_free(&r);
    ok(backend_unavailable(here(), gpu) && strncmp(backend_unavailable(here(), gpu), "lost: ", 6) == 0, "the GPU is %s",
       backend_unavailable(here(), gpu));
    ok(trial_run(&x, t, &go_on, quiet, NULL, &r) == 0 && r.n_ran == 2 && r.skipped &&
           strstr(r.skips, "gpu32: lost: "),
       "the next trial skips it, and says so");
    result_free(&r);
    plan_free(&x);
}

int main(void)
{
    /* By way of MPS the trap would end all processes that share the GPU: without it, there. */
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/dev/null", 1);
    const char *why = backend_unavailable(here(), gpu);
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    devices();
    memory();
    recorded();
    lost();
    return done();
}
