/* Calls of the library in which an output lies where the input does that it may overwrite: the bits of
 * separate memory; any other overlap is refused. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ablate.h"
#include "tests/tap.h"

enum { MAX_TENSORS = 16, BEYOND = 64 };

/* A call with memory of its own for each tensor. */
struct own {
    abl_call *call;
    struct abl_tensor tensor[MAX_TENSORS];
    void *at[MAX_TENSORS], *work;
    int64_t bytes[MAX_TENSORS], work_bytes;
    int n;
};

static void *memory(int64_t bytes)
{
    return aligned_alloc(256, (size_t)(bytes + BEYOND + 255) / 256 * 256);
}

static int64_t bytes_of(const struct abl_tensor *t)
{
    return t->count * (t->dtype == ABL_BF16 ? 2 : t->dtype == ABL_FP64 || t->whole ? 8 : 4);
}

/* Small positive numbers, of any type: the exponents of 1/4 to 1; whole ones are 0. */
static void draw(void *at, const struct abl_tensor *t, unsigned seed)
{
    for (int64_t i = 0; i < t->count; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = 0.25f + (float)(seed >> 8) * 0x1p-24f * 0.7f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (t->whole)
            ((int64_t *)at)[i] = 0;
        else if (t->dtype == ABL_BF16)
            ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)at)[i] = x;
    }
}

static int own_new(struct own *o, const char *words, const char *backend)
{
    memset(o, 0, sizeof *o);
    o->call = abl_call_new(words, backend, 0, NULL);
    if (!o->call)
        return -1;
    while (o->n < MAX_TENSORS && abl_call_tensor(o->call, o->n, &o->tensor[o->n]) == 0) {
        o->bytes[o->n] = bytes_of(&o->tensor[o->n]);
        o->at[o->n] = memory(o->bytes[o->n]);
        if (o->at[o->n] && o->tensor[o->n].role == ABL_INPUT)
            draw(o->at[o->n], &o->tensor[o->n], 7 + (unsigned)o->n);
        o->n++;
    }
    o->work_bytes = abl_call_workspace(o->call, ABL_FORWARD);
    o->work = memory(o->work_bytes);
    return 0;
}

static void own_free(struct own *o)
{
    abl_call_free(o->call);
    for (int i = 0; i < o->n; i++)
        free(o->at[i]);
    free(o->work);
}

static int forward(const struct own *o, void *const *at)
{
    return abl_call_run(o->call, ABL_FORWARD, at, NULL, o->work, o->work_bytes, NULL) ||
                   abl_call_wait(o->call, NULL)
               ? -1
               : 0;
}

static int input_of(const struct own *o, int output)
{
    for (int i = 0; i < o->n; i++)
        if (o->tensor[output].overwrites &&
            strcmp(o->tensor[output].overwrites, o->tensor[i].name) == 0)
            return i;
    return -1;
}

static void refuses(const struct own *o, int output, void *at, const char *what)
{
    void *all[MAX_TENSORS];

    memcpy(all, o->at, sizeof all);
    all[output] = at;
    ok(forward(o, all) && strstr(abl_error(), " overlaps "), "refused: %s %s: %s",
       o->tensor[output].name, what, abl_error());
}

static void judge(const char *words, const char *backend)
{
    struct own o;
    void *all[MAX_TENSORS];
    int any = 0, same = 1;

    if (own_new(&o, words, backend) || forward(&o, o.at)) {
        printf("# %s on %s: %s\n", words, backend, abl_error());
        ok(0, "%s on %s", words, backend);
        own_free(&o);
        return;
    }
    memcpy(all, o.at, sizeof all);
    for (int i = 0; i < o.n; i++) {
        const int in = input_of(&o, i);
        if (in < 0)
            continue;
        any++;
        all[i] = all[in];
        refuses(&o, i, (char *)o.at[in] + 16, "that begins within the input");
        for (int k = 0; k < o.n; k++)
            if (k != in && k != i && o.tensor[k].role == ABL_INPUT && o.bytes[k] == o.bytes[in])
                refuses(&o, i, o.at[k], "where another input is");
    }
    const int e = forward(&o, all);
    for (int i = 0; i < o.n; i++)
        same &= o.tensor[i].role != ABL_OUTPUT || memcmp(all[i], o.at[i], (size_t)o.bytes[i]) == 0;
    if (!ok(any && !e && same, "%s on %s: %d outputs in place, the same bits", words, backend, any))
        printf("# %s\n", e ? abl_error() : "other bits");
    own_free(&o);
}

/* An output of this call is that of the one whose scalars are left out. */
static void left_out(const char *words, const char *backend)
{
    static const struct {
        const char *name;
        float value;
    } said[] = {
        {"rate", 0.25f}, {"unbias1", 1 / 0.75f}, {"unbias2", 1 / 0.4375f}, {"factor", 0.5f}};
    struct own given, less;
    int settled = 0, same = 1;

    if (own_new(&given, words, backend) || own_new(&less, words, backend)) {
        ok(0, "%s on %s: %s", words, backend, abl_error());
        return;
    }
    for (int i = 0; i < given.n; i++) {
        for (size_t k = 0; k < sizeof said / sizeof *said; k++)
            if (strcmp(said[k].name, given.tensor[i].name) == 0)
                *(float *)given.at[i] = said[k].value;
        if (!given.tensor[i].settled)
            continue;
        settled++;
        free(less.at[i]);
        less.at[i] = NULL;
    }
    const int e = forward(&given, given.at) || forward(&less, less.at);
    for (int i = 0; !e && i < given.n; i++)
        same &= given.tensor[i].role != ABL_OUTPUT ||
                memcmp(given.at[i], less.at[i], (size_t)given.bytes[i]) == 0;
    ok(settled == 5 && !e && same, "%s on %s: %d scalars left out, the same bits%s%s", words,
       backend, settled, e ? ": " : "", e ? abl_error() : "");
    free(less.at[0]);
    less.at[0] = NULL;
    ok(forward(&less, less.at) && strstr(abl_error(), "is missing"), "but no other: %s",
       abl_error());
    own_free(&given);
    own_free(&less);
}

int main(void)
{
    static const char *const words[] = {
        "adamw parameters=1003 tensors=3 step=2 dtype=fp32",
        "adamw parameters=1003 tensors=3 master=yes dtype=bf16",
        "gemm M=33 N=40 K=24 beta=0.5 dtype=fp32",
        "gemm_splitk M=33 N=40 K=240 beta=0.5 dtype=bf16",
        "gemv M=65 K=129 beta=-1.5 dtype=fp32",
        "add rows=5 dim=67 dtype=bf16",
        "dropout rows=5 dim=67 dropout=0.5 dtype=bf16",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        judge(words[i], strstr(words[i], "bf16") ? "ref_bf16" : "ref32");
    left_out("adamw parameters=33 step=2 lr=0.25 beta1=0.5 beta2=0.75 clip_factor=0.5 dtype=fp32",
             "ref32");
    return done();
}
