/* update.h - one update of a run: the batch, both passes of the model, the gradient's norm, the schedule and AdamW, in
 * this order, on one backend; where that records passes, one recording (on a GPU a CUDA graph).
 *
 *     examples     token, target from the counter u
 *     the model    loss, hits; the gradient of every weight from d_loss = scale
 *     sum_squares  g2 of all gradients
 *     schedule     rate, corrections, factor (clipping and 1 / scale), skip; u, t and the scale move
 *     adamw        master, moments and weights, in place
 *
 * The weights lie in one buffer, those that a contract keeps wide behind the others (layout.h); so do gradients, masters
 * and moments.  Rates and corrections are tables, made on the host in double. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "common/call/machine.h"
#include "common/program/layout.h"
#include "common/train/cell.h"

/* The calls of an update, in their order; AdamW's second is of wide weights beside bf16 ones. */
enum {
    UPDATE_BATCH,
    UPDATE_MODEL,
    UPDATE_NORM,
    UPDATE_SCHEDULE,
    UPDATE_ADAMW,
    UPDATE_ADAMW_WIDE,
    UPDATE_CALLS
};

struct update {
    const struct cell *cell;
    const struct backend *b, *wide; /* the run's, and that of its wide type on the same machine */
    struct context *x;
    struct call call[UPDATE_CALLS]; /* placed; of no operation: there is none */
    struct pass_of pass[UPDATE_CALLS + 1];
    int n_passes;
    struct layout layout;
    int64_t
        elements;    /* of the gradients' buffer: storage.elements, and wide.elements behind them */
    void *gradients; /* of the wide type */
    void *weights
        [2]; /* of the storage type, and of the wide type: the same buffer where these are one type */
    void *master;    /* NULL: none */
    void *moment[2]; /* m, v: `elements` of the wide type */
    struct region {
        const char *name;
        void *at;
        size_t bytes;
    } state[12]; /* what the next update goes on from */
    int n_state;
    struct call rows;                /* the model on fewer rows; of no operation: not as yet */
    struct call held_out;            /* the batch of another split, with a counter of its own */
    void *memory[2 * MAX_ARGS + 64]; /* all that was allocated */
    int n_memory;
    int64_t bytes;  /* in all */
    int64_t most;   /* the most until now */
    void *recorded; /* NULL: not as yet, or the machine records nothing */
    int ran;        /* one update has run call by call */
    double scale;   /* of the loss in the next update, as of the last update_read() */
    const volatile int
        *stop; /* NULL, or nonzero there: an evaluation ends early, after err_set() */
};

/* Allocates all, draws the weights and makes the tables; `seed` is the run's.  `corpus` are the bytes of a task that has
 * one.  Nonzero after err_set(); update_close() in any case. */
int update_open(struct update *u, const struct cell *c, const struct backend *b, struct context *x,
                uint64_t seed, const unsigned char *corpus);
void update_close(struct update *u);
/* One update; begun, where the machine is asynchronous.  Nonzero after err_set(). */
int update_run(struct update *u);
/* The same call by call, without the recording. */
int update_passes(struct update *u);

/* What an update leaves besides the weights; waits for it.  To be read after each one where the scale moves. */
struct update_values {
    double loss, norm;          /* of the gradient as it is without a scale */
    double rate, factor, scale; /* the scale of the next update */
    int64_t u, t, good, right;  /* updates done, those that changed the weights; targets hit */
    int skipped;
};
int update_read(struct update *u, struct update_values *to);

/* Weights as the optimiser has them, `elements` of the layout, storage then wide, doubles; and back, into masters,
 * too.  Nonzero after err_set(). */
int update_weights(const struct update *u, double *to);
int update_set_weights(struct update *u, const double *from);
/* The gradients of the last update, as AdamW read them. */
int update_gradients(const struct update *u, double *to);

/* All that the next update goes on from, as it lies there: weights, masters, moments, counters, the scale.  NULL after
 * err_set(); to be freed. */
void *update_state(const struct update *u);
int update_restore(struct update *u, const void *state);
size_t update_state_bytes(const struct update *u);
/* NULL: two states have the same bits; or which part has not: "weights", "m" ... */
const char *update_states_differ(const struct update *u, const void *a, const void *b);

/* The model on fewer rows, u->rows, of the run's weights, with gradients and memory of its own; made at the first call
 * for so many.  Nonzero after err_set(). */
int update_rows(struct update *u, int64_t rows);

/* The loss and the hits on `rows` rows, at least, of another split, at the run's weights: forward alone, in the run's
 * memory; `seed` is that of the split's data. */
struct evaluated {
    double loss;                         /* the mean over the tokens that have a target */
    int64_t targets, hits;               /* no hits in a batch whose loss is no finite number */
    int64_t rows, rows_right;            /* all targets of the row hit */
    int64_t targets_at[10], hits_at[10]; /* by the place in the row, a tenth each */
};
int update_evaluate(struct update *u, int split, uint64_t seed, int64_t rows, struct evaluated *to);
/* The same of sequences of another length, in memory that is given back. */
int update_evaluate_at(struct update *u, int split, uint64_t seed, int64_t rows, int64_t length,
                       struct evaluated *to);

/* A batch of held-out data and the model, forward alone, on sequences of another length, at the run's weights. */
struct at_length {
    struct call batch, model;
    int n_memory; /* that there was before */
    int64_t bytes;
};
/* Nonzero after err_set(); update_give_back() in any case. */
int update_at_length(struct update *u, int64_t length, struct at_length *to);
void update_give_back(struct update *u, const struct at_length *of);

#endif
