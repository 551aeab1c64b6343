/* Every kernel of every GPU backend, once forward and backward in each case
 * of its operation, and parity with the oracle: the program for a tool that checks GPU memory,
 * which slows a program down too much for a suite.
 *
 *     once [--small] [--unpoisoned] [--backend NAME] [--without KERNEL] [--part N/ALL] [OPERATION...]
 *
 * --small       only the cases of little work
 * --unpoisoned  put nothing into memory that a kernel has to write: a tool
 *               then sees where it is read before
 * --backend     gpu32 or gpu_bf16 alone
 * --without     no kernel of this name; several times for several
 * --part        every ALL-th case (tests/parts.h)
 *
 * tests/sanitizers.sh runs it, under `make check-gpu`. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/here.h"
#include "tests/parts.h"

/* A tool that checks each access of shared memory takes seconds for more. */
static const double SMALL_WORK = 1.5e5;

enum { MAX_WITHOUT = 8 };

struct session {
    const char *without[MAX_WITHOUT];
    int n_without;
    int small, unpoisoned;
    const char *backend; /* NULL: all */
    struct part part;
    int left;
};

static int left_out(const struct impl *k, void *data)
{
    const struct session *s = data;
    for (int i = 0; i < s->n_without; i++)
        if (strcmp(s->without[i], k->name) == 0)
            return 1;
    return 0;
}

static int judge_once(const struct run *c, struct question *q, void *data, struct verdicts *list)
{
    const struct session *s = data;
    struct run once = *c;
    struct tensors *got = NULL;
    struct bounds bounds;

    once.unpoisoned = s->unpoisoned;
    int e = judge_parity(&once, q, &got, &bounds, NULL, list);
    tensors_free(got);
    return e;
}

static int once_case(const struct call *f, void *data)
{
    struct kernel_test *each = data;
    struct session *s = each->data;

    if (!part_takes(&s->part))
        return 0;
    if (!s->small || work_of(f) <= SMALL_WORK)
        return test_kernels(f, each);
    s->left++;
    return 0;
}

/* The part's cases on one backend. */
static void run_backend(const struct backend *b, struct session *s)
{
    struct kernel_test each = {
        .backend = b, .judge = judge_once, .left_out = left_out, .data = s, .how = ", once"};

    printf("# %s: %s\n", b->name, backend_device(here(), b));
    for (int i = 0; i < N_OPS; i++)
        if (named(ops[i], s->part.n, s->part.name))
            for_cases(ops[i], ops[i]->cases, once_case, &each);
}

static int usage(void)
{
    fprintf(stderr, "usage: once [--small] [--unpoisoned] [--backend NAME] [--without KERNEL] "
                    "[--part N/ALL] [OPERATION...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct session s = {.small = 0};
    int first = 1;

    for (; first < argc && argv[first][0] == '-' && strcmp(argv[first], "--part"); first++) {
        if (strcmp(argv[first], "--small") == 0)
            s.small = 1;
        else if (strcmp(argv[first], "--unpoisoned") == 0)
            s.unpoisoned = 1;
        else if (strcmp(argv[first], "--backend") == 0 && first + 1 < argc)
            s.backend = argv[++first];
        else if (strcmp(argv[first], "--without") == 0 && first + 1 < argc &&
                 s.n_without < MAX_WITHOUT)
            s.without[s.n_without++] = argv[++first];
        else
            return usage();
    }
    if (part_read(argc - first + 1, argv + first - 1, &s.part))
        return usage();
    if (!any_gpu_or_skip_all())
        return 0;
    for (int i = 0; judged_backend(i); i++)
        if (!backend_unavailable(here(), judged_backend(i)) &&
            (!s.backend || strcmp(s.backend, judged_backend(i)->name) == 0))
            run_backend(judged_backend(i), &s);
    if (s.left)
        printf("# %d cases beyond %.1e operations are left out\n", s.left, SMALL_WORK);
    return done();
}
