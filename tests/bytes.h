/* bytes.h - an operation with inputs, outputs, states and saved tensors of bytes, for tests/bytes and
 * tests/byte_files.  It stands in the list of operations, and on the references, in the place of
 * histogram: the linker takes that from the program, not from the archive. */
#ifndef BYTES_H
#define BYTES_H

#include "tests/suite.h"

/* c_t = c_{t-1} + W_t, V_t = c_t, all modulo 256; y = x (W - 128) / 64; and W itself, hidden, is
 * saved for backward. */
struct bytes {
    void *x, *W, *c0, *y, *V, *c, *saved;
};

static const struct param params[] = {
    SIZE_PARAM("rows", 'N', 3, "rows of all"),
    SIZE_PARAM("steps", 'T', 5, "steps of all"),
};

/* Even numbers. */
static void draw_even(const struct call *f, int arg, uint64_t key, unsigned char *b)
{
    for (int64_t i = 0; i < op_count(f, arg); i++)
        b[i] = (unsigned char)(2 * (int)(128 * draw_uniform(key, i)));
}

static int refuse_255(const struct call *f, int arg, const char *place, const unsigned char *b)
{
    for (int64_t i = 0; i < op_count(f, arg); i++)
        if (b[i] == 255)
            return err_set("%s has 255 at %lld", place, (long long)i);
    return 0;
}

static const struct arg args[] = {
    ARG(bytes, x, "NT", IN | DIFF, NORMAL),
    ARG(bytes, W, "NT", IN | BYTES | NOT_BACK),
    ARG(bytes, c0, "N", IN | BYTES | NOT_BACK, .draw_bytes = draw_even, .bytes_check = refuse_255),
    ARG(bytes, y, "NT", OUT | DIFF),
    ARG(bytes, V, "NT", OUT | BYTES),
    ARG(bytes, c, "N", OUT | BYTES, .continues = "c0"),
    ARG(bytes, saved, "NT", SAVED | BYTES),
};

static const struct identity list_of_identities[] = {
    {"copied", "rows=3 steps=4", "rows=3 steps=4", NULL, "W=W c0=c0", "y V c", NULL},
    {"real input", "rows=3 steps=4", "rows=3 steps=4", NULL, "x=ones", "V c", NULL},
};

/* A factor of bytes is no number: nothing may take it for one. */
static const struct product products[] = {{.result = "y", .left = "x", .right = "W"}, {NULL}};

COST(flops, "NT", 2, 1)

const struct op op_histogram = {
    .name = "bytes",
    .formula = "V = bytes",
    .source = "tests/bytes.h",
    SIGNATURE(bytes, params, args),
    .identity = list_of_identities,
    .n_identities = COUNT(list_of_identities),
    .product = products,
    .cases = "rows=3 steps=5",
    .flops = flops,
    .batch = 'N',
    .time = 'T',
};

static double load(enum dtype t, const void *at, int64_t i)
{
    double x;
    types[t].widen(&x, (const char *)at + i * types[t].bytes, 1);
    return x;
}

static void store(enum dtype t, void *at, int64_t i, double x)
{
    types[t].narrow((char *)at + i * types[t].bytes, &x, 1);
}

enum { HIDDEN = 0x55 };

/* How wrong a kernel is; its impl.data. */
enum fault { RIGHT, WRONG, SHORT, OVERRUN, VARYING, FORGETFUL, N_FAULTS };
static const enum fault faults[] = {RIGHT, WRONG, SHORT, OVERRUN, VARYING, FORGETFUL};

/* Where the last run had W. */
static const void *seen;

static int forward(const struct call *f)
{
    static int runs;
    const struct bytes *a = ARGS(f, bytes);
    const int64_t N = DIM(f, 'N'), T = DIM(f, 'T');
    const unsigned char *W = a->W, *c0 = a->c0;
    unsigned char *V = a->V, *c = a->c, *saved = a->saved;
    const enum fault fault = *(const enum fault *)f->kernel->data;

    seen = W;
    for (int64_t n = 0; n < N; n++) {
        unsigned char sum = c0[n];
        for (int64_t t = 0; t < T; t++) {
            const int64_t i = n * T + t;
            sum = (unsigned char)(sum + W[i]);
            store(f->type[PLACE(bytes, y)], a->y, i,
                  load(f->type[PLACE(bytes, x)], a->x, i) * (W[i] - 128) / 64);
            saved[i] = W[i] ^ HIDDEN;
            if (fault != SHORT || i < N * T - 1)
                V[i] = sum;
        }
        c[n] = (unsigned char)(fault == FORGETFUL ? sum - c0[n] : sum);
    }
    if (fault == WRONG)
        V[N * T - 1] ^= 1;
    if (fault == OVERRUN)
        V[N * T] = 1;
    if (fault == VARYING)
        V[0] = (unsigned char)runs++;
    return 0;
}

static int backward(const struct call *f)
{
    const struct bytes *a = ARGS(f, bytes), *g = GRADS(f, bytes);
    const unsigned char *saved = a->saved;

    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'T'); i++)
        store(f->grad_type[PLACE(bytes, x)], g->x, i,
              load(f->grad_type[PLACE(bytes, y)], g->y, i) * ((saved[i] ^ HIDDEN) - 128) / 64);
    return 0;
}

/* A kernel for each type of the references. */
#define IN(type_, name_, fault_)                                                                   \
    {                                                                                              \
        .name = #name_, .type = type_, .pass = {forward, backward}, .data = &faults[fault_]        \
    }
#define KERNEL(name_, fault_)                                                                      \
    static const struct impl name_[] = {IN(F64, name_, fault_), IN(F32, name_, fault_),            \
                                        IN(BF16, name_, fault_)}
KERNEL(right, RIGHT);
KERNEL(wrong, WRONG);
KERNEL(part, SHORT);
KERNEL(overrun, OVERRUN);
KERNEL(varying, VARYING);
KERNEL(forgetful, FORGETFUL);

static inline const struct impl *in_type(const struct impl *k, enum dtype type)
{
    while (k->type != type)
        k++;
    return k;
}

/* By `enum fault`, the one for this type. */
static inline const struct impl *faulty(int fault, enum dtype type)
{
    static const struct impl *const all[] = {right, wrong, part, overrun, varying, forgetful};
    return in_type(all[fault], type);
}

/* These take the place of histogram's references. */
extern const struct impl ref64_histogram, ref32_histogram, ref_bf16_histogram;
const struct impl ref64_histogram = IN(F64, right, RIGHT);
const struct impl ref32_histogram = IN(F32, right, RIGHT);
const struct impl ref_bf16_histogram = IN(BF16, right, RIGHT);

enum { X, W, C0, Y, V, C, HIDDEN_W, N_TENSORS };

#endif
