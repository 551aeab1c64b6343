/* cell.h - a run of training as a case of an operation: `train`, which has parameters alone and no tensors.
 *
 *     train mixer=e74 proj=full z_mod=row nonlin=tanh n_state=16 width=32 task=parity length=32 lr=1e-2
 *
 * Its parameters are those of the mixer (its sizes and choices, but what follows from the model, and how inputs are
 * drawn), then the model's, the task's (those of examples, which makes the batches) and the optimiser's; so all that
 * reads, multiplies, names and prints parameters serves training, too.  There is one such operation for each mixer.
 *
 * The model: x = E[token]; `blocks` times x <- x + W_o mixer(rmsnorm(x)), and with mlp = M besides
 * x <- x + W_d swiglu(W_g x', W_u x'), x' = rmsnorm(x); then rmsnorm, the head and the cross entropy of the
 * tokens that have a target, and which of them are hit.  It is a program (program.h), whose text follows from the parameters: cell_text(). */
#ifndef TRAIN_CELL_H
#define TRAIN_CELL_H

#include "common/call/contract.h"

/* Of that mixer, the same one at each call; NULL after err_set(). */
const struct op *cell_op(const char *mixer);
int is_cell(const struct op *o);
/* The names of an operation's mixer, and of a case's task. */
const char *cell_mixer_of(const struct op *o);
const char *cell_task_of(const struct call *f);
/* The mixers, i from 0; NULL behind the last.  Their operation, or NULL: none. */
const char *cell_mixer(int i, const struct op **o);
/* Is parameter i of cell_op()'s a key?  Others follow from the model, or a run has none of them. */
int cell_has_key(const struct op *o, int i);
/* What a key says: the model with its mixer, the task, or how it is trained; also of adjust, dtype, seed, confirm, eval and file,
 * which are no parameters; -1: no such key. */
enum cell_part { CELL_OF_MODEL, CELL_OF_TASK, CELL_OF_TRAIN, CELL_PARTS };
int cell_part(const struct op *o, const char *key);

/* In place of a learning rate: the best of a search.  cell_read() reads it as INFINITY; no such run can be made before
 * cell_set_rate(). */
#define BEST_RATE "best"
int cell_waits(const struct call *f);
double cell_rate(const struct call *f);
void cell_set_rate(struct call *f, double lr);

enum train_schedule { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD, SCHEDULE_CONSTANT };

enum { MAX_LENGTHS = 16 }; /* of a test */

/* What a case says, its defaults worked out. */
struct cell {
    struct call model;                             /* of the program: complete, on no backend */
    struct call batch;                             /* of examples: complete, of the training data */
    int64_t updates, until, warmup, decay, blocks; /* until: the run ends there */
    double lr, final;
    enum train_schedule schedule;
    double weight_decay, beta1, beta2, eps, clip;
    double loss_scale; /* the first one, 1: none */
    int dynamic;       /* it moves */
    int64_t eval_every, eval_rows,
        parity_every;        /* updates; rows of validation; updates, 0: never */
    double target;           /* accuracy of a run that has learned */
    int64_t patience;        /* evaluations running */
    int stop;                /* end there */
    double checkpoint_every; /* seconds; 0: none but where it is interrupted */
};

/* Of a case whose parameters are set; `seed` is the run's: of the training data.  Nonzero after err_set(). */
int cell_read(const struct call *f, uint64_t seed, struct cell *to);
/* Its batch alone.  Nonzero after err_set(): the task cannot have such sizes. */
int cell_batch(const struct call *f, struct call *to);
/* The model's program, to be freed; NULL after err_set(). */
char *cell_text(const struct call *f);
/* Has the task a corpus, a file? */
int cell_has_corpus(const struct call *f);
/* Its bytes, without which op_complete() refuses such a case. */
void cell_set_corpus(struct call *f, int64_t bytes);

/* The model's parameters, as op_parameters(), stored in that type. */
double cell_parameters(const struct call *f, enum dtype type, int64_t *bytes);

/* Bytes of the corpus, vocabulary and classes of a batch's task (examples). */
int64_t cell_corpus(const struct call *batch);
int64_t cell_vocabulary(const struct call *batch);
int64_t cell_classes(const struct call *batch);

#endif
