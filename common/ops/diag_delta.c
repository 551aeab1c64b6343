/* The contract of diag_delta: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/diag_delta.h"

static const struct param params[] = {
    SIZE_PARAM("batch", 'B', 32, "sequences"),
    SIZE_PARAM("steps", 'T', 512, "sequence length"),
    SIZE_PARAM("n_state", 'N', 64, "cells of a sequence"),
};

static const struct arg args[] = {
    ARG(diag_delta, k, "BTN", IN | DIFF, UNIT),
    ARG(diag_delta, v, "BTN", IN | DIFF, NORMAL),
    ARG(diag_delta, q, "BTN", IN | DIFF, NORMAL),
    ARG(diag_delta, s0, "BN", IN | DIFF | WIDE, NORMAL),
    ARG(diag_delta, y, "BTN", OUT | DIFF),
    ARG(diag_delta, s, "BTN", SAVED | WIDE),
};

COST(flops, "BTN", 6, 15)

/* Backward finds the states kept. */
COST(specials, "BTN", 1, 0)

/* s = tanh(fma(1 - k^2, s, k v)); ds = fma((1 - s^2)(1 - k^2), ds, ...): all but ds is known. */
static struct chain chain(const struct call *f, enum pass p)
{
    return (struct chain){(double)DIM(f, 'T'), 1, p == FORWARD};
}

static const struct cost costs[] = {
    {"steps=3 batch=2 n_state=4", FORWARD, 0, 0, 24, {3, 1, 1}},
    {"steps=3 batch=2 n_state=4", BACKWARD, 0, 0, 0, {3, 1, 0}},
    {.settings = NULL},
};

const struct op op_diag_delta = {
    .name = "diag_delta",
    .formula = "s = tanh((1 - k^2) s + k v); y = q s",
    .source = "common/ops/diag_delta.h",
    SIGNATURE(diag_delta, params, args),
    .cases = "batch=1 steps=1 n_state=1; batch=3 steps=17 n_state=33; "
             "batch=2 steps=64 n_state=256",
    .cost = costs,
    .flops = flops,
    .specials = specials,
    .chain = chain,
    .batch = 'B',
    .time = 'T',
};
