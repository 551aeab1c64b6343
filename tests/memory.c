/* The memory that an operation states against the memory that it allocates, on the CPU and on
 * a GPU; and E74's checkpoints against the table of its specification. */
#include "config.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/suite.h"

static int64_t now_bytes, max_bytes;

static void *count_alloc(struct context *x, size_t bytes)
{
    (void)x;
    void *p = malloc(bytes);
    now_bytes += p ? malloc_usable_size(p) : 0;
    max_bytes = now_bytes > max_bytes ? now_bytes : max_bytes;
    return p;
}

static void count_free(struct context *x, void *p)
{
    (void)x;
    now_bytes -= malloc_usable_size(p);
    free(p);
}

/* The allocator may round up, by two pages per tensor. */
static int close_to(int64_t got, int64_t predicted, int n_tensors)
{
    return got >= predicted && got <= predicted + n_tensors * 8192;
}

/* Memory does not depend on the time of a case: only cases of little work. */
static const double SMALL_WORK = 1e5;

/* The oracle's doubles, and the bytes of any reference, are the run's own tensors. */
static int64_t allocated(const struct call *f, int64_t predicted)
{
    for (int i = 0; i < f->op->n_args; i++) {
        const int own = call_overwrites(f, i) >= 0 || call_overwritten(f, i);
        const int64_t each =
            (!own && f->type[i] == F64) + (f->op->arg[i].flags & DIFF && f->grad_type[i] == F64);
        predicted -= op_count(f, i) * (each * types[F64].bytes + (!own && op_is_bytes(f, i)));
    }
    return predicted;
}

static int measure_once(const struct call *f, const struct backend *b)
{
    const struct op *o = f->op;
    struct machine m = *b->machine;
    struct backend counted = *b;
    struct run c = {.call = call_on(f, &counted, op_kernel(o, b, 0), context_of(here(), b))};
    struct outcome out;
    char text[MAX_TEXT];

    c.call.in_place = f->in_place;
    struct tensors *t = tensors_new(f);
    counted.machine = &m;
    m.memory.alloc = count_alloc;
    m.memory.free = count_free;
    now_bytes = max_bytes = 0;
    op_text(f, text);
    if (!t) {
        ok(0, "%s", err_text());
        return 0;
    }
    tensors_draw(t, f, 1, 0);
    int e = run_op(&c, t, &out);
    int64_t predicted = op_memory(&c.call);
    ok(!e && out.peak == predicted &&
           close_to(max_bytes, allocated(&c.call, predicted), 2 * o->n_args + 1) && now_bytes == 0,
       "%s %s %s%s: %lld bytes predicted", b->name, o->name, text,
       set_any(&f->accumulate) ? ", accumulate"
       : f->in_place           ? ", in place"
                               : "",
       (long long)predicted);
    printf("# %lld allocated at once, of these %lld saved for backward\n", (long long)max_bytes,
           (long long)op_saved(&c.call));
    tensors_free(t);
    return 0;
}

/* Has the call an output that may lie where an input does? */
static int may_overwrite(const struct call *f)
{
    struct call place = *f;
    int overwrites = 0;

    place.in_place = 1;
    for (int i = 0; i < f->op->n_args; i++)
        overwrites |= call_overwrites(&place, i) >= 0;
    return overwrites;
}

static int measure(const struct call *f, void *data)
{
    struct call adds = *f, place = call_here(f, data, NULL);

    adds.accumulate = op_gradients(f->op);
    place.in_place = 1;
    if (work_of(f) > SMALL_WORK)
        return 0;
    measure_once(f, data);
    if (set_any(&adds.accumulate))
        measure_once(&adds, data);
    return may_overwrite(&place) ? measure_once(&place, data) : 0;
}

/* ---- a GPU's memory, as the device itself counts ---- */

/* CUDA takes memory from the device in pages of 2 MiB; the emulator, to the byte. */
static const double PAGE = 0x1p21;

static const struct backend *device;

/* Without the workspace that cuBLAS allocates at its first product and keeps: an
 * earlier run has made it do so.  (The emulator has no cuBLAS.) */
static void measure_kernel(const struct run *c, struct tensors *t)
{
    const char *place = c->call.in_place ? ", in place" : "";
    struct run watch = *c;
    struct outcome out;
    char text[MAX_TEXT];
    int e = emulated(device) ? 0 : run_op(c, t, NULL);
    int64_t before = device->machine->memory.left(context_of(here(), device));
    int64_t predicted = op_memory(&c->call);

    op_text(&c->call, text);
    watch.watch = 1;
    e = e || run_op(&watch, t, &out);
    double used = (double)out.used, off = used - (double)predicted;
    double slack = 0.02 * (double)predicted;
    int alone = device->machine->memory.left(context_of(here(), device)) == before;
    int near = off > -slack && off < slack + (emulated(device) ? 0 : PAGE);
    if (!e && !(alone && near) && others_may_use(device)) {
        skip("others may use the device meanwhile", "%s %s %s %s%s", device->name,
             c->call.kernel->name, c->call.op->name, text, place);
        return;
    }
    ok(!e && alone && near, "%s %s %s %s%s: %lld bytes predicted, %.0f in use at most, %+.2f %%",
       device->name, c->call.kernel->name, c->call.op->name, text, place, (long long)predicted,
       used, 100 * off / (double)predicted);
}

static int measure_device(const struct call *f, void *data)
{
    const struct impl *k;
    const struct op *o = f->op;
    device = data;
    if (emulated(device) && work_of(f) > SMALL_WORK)
        return 0;
    struct tensors *t = tensors_new(f);
    if (!t) {
        ok(0, "%s", err_text());
        return 0;
    }
    tensors_draw(t, f, 1, 0);
    for (int n = 0; (k = op_kernel(o, device, n)); n++) {
        struct run c = {.call = call_here(f, device, k)};
        if (impl_declines(&c.call))
            continue;
        measure_kernel(&c, t);
        if (may_overwrite(&c.call)) {
            c.call.in_place = 1;
            measure_kernel(&c, t);
        }
    }
    tensors_free(t);
    return 0;
}

static void devices(void)
{
    for (int i = 0; judged_backend(i); i++) {
        const struct backend *b = judged_backend(i);
        const char *why = backend_unavailable(here(), b);
        if (why) {
            skip(why, "%s: bytes in use on the device", b->name);
            continue;
        }
        for (int o = 0; o < N_OPS; o++) {
            const char *cases = emulated(b) ? ops[o]->cases : ops[o]->memory;
            if (cases)
                for_cases(ops[o], cases, measure_device, (void *)b);
        }
    }
}

static void table(const char *state, int64_t checkpoints)
{
    const struct op *o = op_find("e74");
    struct call f;
    char text[MAX_TEXT];

    snprintf(text, sizeof text,
             "state=%s checkpoint_dtype=bf16 steps=512 batch=32 n_state=64 "
             "checkpoint_interval=32",
             state);
    if (cases_one(o, text, &f)) {
        ok(0, "%s", err_text());
        return;
    }
    int arg = op_arg(o, "checkpoints");
    f = call_on(&f, &ref_bf16, NULL, NULL);
    int64_t bytes = op_count(&f, arg) * types[f.type[arg]].bytes;
    int64_t caches = 4 * 512 * 32 * 64 * 2; /* k, v, q and y */
    ok(bytes == checkpoints && op_saved(&f) == checkpoints + caches,
       "%s: checkpoints of %lld bytes, caches of %lld", state, (long long)bytes, (long long)caches);
}

int main(void)
{
    static const struct backend *const each[] = {&ref64, &ref32, &ref_bf16};
    for (size_t i = 0; i < COUNT(each); i++)
        for (int o = 0; o < N_OPS; o++)
            for_cases(ops[o], ops[o]->cases, measure, (void *)each[i]);
    table("diagonal", 64 << 10);
    table("full", 4 << 20);
    devices();
    return done();
}
