/* ablate.h's calls: a pass of a kernel on tensors and a workspace of the caller's. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/api/api.h"

/* Bytes of which each address is a multiple: loads of vectors and tensor maps need 16. */
enum { ALIGNED = 16 };

struct abl_call {
    char text[MAX_LINE];
    struct call call; /* complete but for the tensors; its context is lent */
    int n;            /* tensors, and for each its place in the operation's list */
    int arg[MAX_ARGS];
    int64_t work[N_PASSES]; /* bytes of the kernel's workspace, where that of its products begins */
    int64_t bytes[N_PASSES];
    void *kept; /* the settled inputs, where the kernel runs; NULL: it has none */
};

/* ---- a call ---- */

/* Does a word begin with that key? */
static int has_key(const char *words, const char *key)
{
    for (const char *at = words; (at = strstr(at, key)); at++)
        if (at > words && strchr(" \t\n", at[-1]))
            return 1;
    return 0;
}

/* Its storage type is the backend's, unless the words name another. */
static int parse(const char *words, const struct backend *b, struct trial *t)
{
    const int named = has_key(words, "dtype=");
    const size_t size = strlen(words) + 20;
    char *text = malloc(size);

    if (!text)
        return err_set("no memory for words");
    snprintf(text, size, "%s%s%s", words, named ? "" : " dtype=", named ? "" : types[b->type].name);
    const int e = words_parse(text, 1, t);
    free(text);
    if (!e && t->type != b->type)
        return err_set("%s stores %s, the call is dtype=%s", b->name, types[b->type].name,
                       types[t->type].name);
    return e;
}

/* The kernel, and a context that passes of any number of threads may use at once. */
static int prepare(struct call *f, int device, const char *kernel)
{
    const struct backend *b = f->backend;

    if (!b->machine->lending.lend)
        return device ? err_set("%s has no device %d", b->name, device) : choose_kernel(f, kernel);
    struct context *own = f->context = context_on(library_contexts(), b, device);
    if (!own)
        return err_at("%s: device %d", b->name, device);
    f->context =
        choose_kernel(f, kernel) ? NULL : b->machine->lending.lend(own, f->kernel->products);
    return f->context ? 0 : -1;
}

static void measure(struct abl_call *c)
{
    for (int p = FORWARD; p < N_PASSES; p++) {
        struct work_arena a = {NULL, 0};
        work_take(&a, op_work(&c->call, (enum pass)p));
        c->work[p] = (int64_t)a.bytes;
        if (c->call.kernel->products)
            work_take(&a, c->call.backend->machine->lending.products);
        c->bytes[p] = (int64_t)a.bytes;
    }
    for (int i = 0; i < c->call.op->n_args; i++)
        if (op_has(&c->call, i))
            c->arg[c->n++] = i;
}

/* The settled inputs, ALIGNED bytes for each in the order of the operation's. */
static int keep_settled(abl_call *c)
{
    const struct machine *m = c->call.backend->machine;
    char values[MAX_ARGS * ALIGNED] = {0}, *at = values;

    for (int i = 0; i < c->n; i++) {
        const struct arg *a = &c->call.op->arg[c->arg[i]];
        double x;
        if (!a->settled)
            continue;
        a->draw(&c->call, c->arg[i], 0, &x);
        narrow((enum dtype)c->call.type[c->arg[i]], at, &x, 1);
        at += ALIGNED;
    }
    const size_t bytes = (size_t)(at - values);
    if (!bytes)
        return 0;
    if (m->lending.keep)
        c->kept = m->lending.keep(c->call.context, values, bytes);
    else if ((c->kept = aligned_alloc(ALIGNED, bytes)))
        memcpy(c->kept, values, bytes);
    return c->kept ? 0 : err_set("no memory for the scalars of %s", c->call.op->name);
}

static abl_call *call_new(const char *words, const struct backend *b, int device,
                          const char *kernel)
{
    struct trial *t = calloc(1, sizeof *t);
    abl_call *c = calloc(1, sizeof *c);
    int e = !t || !c;

    if (e)
        err_set("no memory for a call");
    e = e || parse(words, b, t);
    if (!e) {
        c->call = t->call;
        c->call.backend = b;
        call_types(&c->call);
        memcpy(c->text, t->text, sizeof c->text);
        e = prepare(&c->call, device, kernel);
    }
    free(t);
    if (e) {
        abl_call_free(c);
        return NULL;
    }
    measure(c);
    if (keep_settled(c)) {
        abl_call_free(c);
        return NULL;
    }
    return c;
}

abl_call *abl_call_new(const char *words, const char *backend, int device, const char *kernel)
{
    if (IS_NULL(words, "string of words") || IS_NULL(backend, "backend"))
        return NULL;
    const struct backend *b = find_backend(backend);
    if (!b || lock_library())
        return NULL;
    const char *no = b->machine->device.unavailable();
    abl_call *c =
        no ? err_null("%s cannot run here: %s", b->name, no) : call_new(words, b, device, kernel);
    unlock_library();
    return c;
}

void abl_call_free(abl_call *c)
{
    if (c && c->kept && c->call.backend->machine->lending.keep)
        c->call.backend->machine->memory.free(c->call.context, c->kept);
    else if (c)
        free(c->kept);
    if (c && c->call.context)
        c->call.backend->machine->device.close(c->call.context);
    free(c);
}

const char *abl_call_text(const abl_call *c)
{
    return IS_NULL(c, "call") ? NULL : c->text;
}

const char *abl_call_kernel(const abl_call *c)
{
    return IS_NULL(c, "call") ? NULL : c->call.kernel->name;
}

int abl_call_tensor(const abl_call *c, int i, struct abl_tensor *to)
{
    if (IS_NULL(c, "call") || IS_NULL(to, "destination"))
        return -1;
    if (i < 0 || i >= c->n)
        return 1;
    const int arg = c->arg[i];
    describe_tensor(c->call.op, &c->call, arg, to);
    describe_types(&c->call, arg, to);
    to->in_backward = op_read_back(&c->call, arg);
    return 0;
}

int64_t abl_call_workspace(const abl_call *c, enum abl_pass pass)
{
    enum pass p;
    if (IS_NULL(c, "call") || IS_NO_PASS(pass, &p))
        return -1;
    return c->bytes[p];
}

/* ---- what a run is given ---- */

/* One array of a run. */
struct range {
    const char *begin, *end;
    int arg, grad; /* arg -1: the workspace */
    int written;
};

static const char *range_name(const abl_call *c, const struct range *r, char name[32])
{
    if (r->arg < 0)
        return "the workspace";
    tensor_name(c->call.op, r->arg, r->grad, name);
    return name;
}

/* Whether a pass uses the tensor, or its gradient; and whether it writes it. */
static int used(const struct call *f, enum pass p, int arg, int grad, int *written)
{
    const unsigned flags = f->op->arg[arg].flags;

    *written = p == FORWARD ? !(flags & IN) : grad && flags & IN;
    if (grad)
        return p == BACKWARD && flags & DIFF;
    return p == FORWARD || op_read_back(f, arg);
}

/* Where its tensor i is kept; NULL: it is none of those. */
static void *settled_at(const abl_call *c, int i)
{
    char *at = c->kept;

    if (!c->call.op->arg[c->arg[i]].settled)
        return NULL;
    while (i-- > 0)
        at += c->call.op->arg[c->arg[i]].settled ? ALIGNED : 0;
    return at;
}

/* Places what the caller gives in f, and lists it; returns the number, or -1 after err_set(). */
static int take_tensors(const abl_call *c, enum pass p, void *const *tensors,
                        void *const *gradients, struct call *f, struct range list[2 * MAX_ARGS + 1])
{
    int n = 0;

    for (int i = 0; i < c->n; i++)
        for (int grad = 0; grad < 2; grad++) {
            struct range r = {.arg = c->arg[i], .grad = grad};
            char name[32];
            if (!used(f, p, r.arg, grad, &r.written))
                continue;
            void *at = (grad ? gradients : tensors)[i];
            const enum dtype type = call_type(f, r.arg, grad);
            if (!at && !grad && (f->arg[r.arg] = settled_at(c, i)))
                continue;
            if (!at)
                return err_set("%s is missing", range_name(c, &r, name));
            if ((uintptr_t)at % ALIGNED)
                return err_set("%s is misaligned: its address is no multiple of %d bytes",
                               range_name(c, &r, name), ALIGNED);
            (grad ? f->grad : f->arg)[r.arg] = at;
            r.begin = at;
            r.end = r.begin + op_count(f, r.arg) * types[type].bytes;
            list[n++] = r;
        }
    return n;
}

/* The workspace as well. */
static int take_work(const abl_call *c, enum pass p, void *work, int64_t bytes, struct call *f)
{
    if (!c->bytes[p])
        return 0;
    if (!work)
        return err_set("the workspace is missing: %s needs %" PRId64 " bytes", pass_names[p],
                       c->bytes[p]);
    if (bytes < c->bytes[p])
        return err_set("the workspace is too small: %s needs %" PRId64 " bytes, it has %" PRId64,
                       pass_names[p], c->bytes[p], bytes);
    if ((uintptr_t)work % 256)
        return err_set("the workspace is misaligned: its address is no multiple of 256 bytes");
    f->work = work;
    return 0;
}

/* Is the one an output in the memory of the other, an input, as the contract allows? */
static int is_in_place(const abl_call *c, const struct range *output, const struct range *input)
{
    return output->arg >= 0 && !output->grad && !input->grad && output->begin == input->begin &&
           output->end == input->end && op_overwrites(&c->call, output->arg) == input->arg;
}

/* Nothing that is written may overlap anything else, unless it is in place. */
static int check_overlaps(const abl_call *c, const struct range *r, int n)
{
    char one[32], other[32];

    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if ((r[i].written || r[j].written) && r[i].begin < r[j].end && r[j].begin < r[i].end &&
                !is_in_place(c, &r[i], &r[j]) && !is_in_place(c, &r[j], &r[i]))
                return err_set("%s overlaps %s", range_name(c, &r[r[i].written ? i : j], one),
                               range_name(c, &r[r[i].written ? j : i], other));
    return 0;
}

static int check_ranges(const abl_call *c, const struct range *r, int n, void *stream)
{
    const struct backend *b = c->call.backend;
    const char *why;
    char name[32];

    for (int i = 0; b->machine->lending.foreign && i < n; i++)
        if ((why = b->machine->lending.foreign(c->call.context, r[i].begin)))
            return err_set("%s is %s", range_name(c, &r[i], name), why);
    if (b->machine->lending.foreign_stream &&
        (why = b->machine->lending.foreign_stream(c->call.context, stream)))
        return err_set("the stream is %s", why);
    return 0;
}

/* ---- a run ---- */

static int run(const abl_call *c, struct call *f, enum pass p, void *stream)
{
    const struct backend *b = f->backend;
    int e;

    if (b->machine->lending.pass_on) {
        void *products = f->kernel->products ? (char *)f->work + c->work[p] : NULL;
        e = b->machine->lending.pass_on(f, p, stream, products);
    } else {
        if (lock_library())
            return -1;
        e = call_pass(f, p);
        unlock_library();
    }
    return e ? err_set("%s on %s, kernel %s, %s: %s", f->op->name, b->name, f->kernel->name,
                       pass_names[p], b->machine->strerror(e))
             : 0;
}

static int has_pass(const abl_call *c, enum pass p)
{
    return c->call.kernel->pass[p]
               ? 1
               : (err_set("%s has no %s pass", c->call.op->name, pass_names[p]), 0);
}

int abl_call_run(const abl_call *c, enum abl_pass pass, void *const *tensors,
                 void *const *gradients, void *workspace, int64_t bytes, void *stream)
{
    struct range list[2 * MAX_ARGS + 1];
    enum pass p;

    if (IS_NULL(c, "call") || IS_NULL(tensors, "list of tensors") || IS_NO_PASS(pass, &p) ||
        (p == BACKWARD && IS_NULL(gradients, "list of gradients")) || !has_pass(c, p))
        return -1;
    struct call f = c->call;
    int n = take_tensors(c, p, tensors, gradients, &f, list);
    if (n < 0 || take_work(c, p, workspace, bytes, &f))
        return -1;
    if (f.work)
        list[n++] = (struct range){f.work, (char *)f.work + c->bytes[p], -1, 0, 1};
    if (check_overlaps(c, list, n) || check_ranges(c, list, n, stream))
        return -1;
    return run(c, &f, p, stream);
}

int abl_call_wait(const abl_call *call, void *stream)
{
    if (IS_NULL(call, "call"))
        return -1;
    const struct backend *b = call->call.backend;
    const int e =
        b->machine->lending.wait_on ? b->machine->lending.wait_on(call->call.context, stream) : 0;
    return e ? err_set("%s: %s", b->name, b->machine->strerror(e)) : 0;
}

int abl_call_run_trusted(const abl_call *c, const struct abl_block *block)
{
    struct range list[2 * MAX_ARGS + 1];
    enum pass p;

    if (IS_NULL(c, "call") || IS_NULL(block, "block") || IS_NO_PASS(block->pass, &p) ||
        !has_pass(c, p))
        return -1;
    struct call f = c->call;
    void *const *tensors = (void *const *)(block + 1);
    if (take_tensors(c, p, tensors, tensors + c->n, &f, list) < 0 ||
        take_work(c, p, block->workspace, block->bytes, &f))
        return -1;
    return run(c, &f, p, block->stream);
}
