/* Finds the tensors of a model in GGUF, which may be in several files (gguf.h): the shards of
 *
 *     m-00001-of-00003.gguf  m-00002-of-00003.gguf  m-00003-of-00003.gguf
 *
 * stand in one folder, and any of them leads to the others. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/gguf.h"
#include "common/base/guess.h"

/* ---- shards ---- */

/* The name of shard k of the model of shard g, to be freed; NULL after err_set(): g's own name says
 * nothing of it, or no memory. */
static char *shard_name(const struct gguf *g, int k)
{
    char end[64], *name = NULL;
    const size_t n = strlen(g->file);
    const size_t m = (size_t)snprintf(end, sizeof end, "-%05d-of-%05d.gguf", g->shard, g->shards);

    if (n < m || strcmp(g->file + n - m, end) != 0)
        return err_null("the name %s does not end in %s, and says nothing of the others", g->file,
                        end);
    if (asprintf(&name, "%.*s-%05d-of-%05d.gguf", (int)(n - m), g->file, k, g->shards) < 0)
        return err_null("no memory for the name of a shard");
    return name;
}

/* Shard k of the model of shard g; NULL after err_set(). */
static struct gguf *open_shard(const struct gguf *g, int k)
{
    char *name = shard_name(g, k);
    struct gguf *s = name ? gguf_open_alone(name) : NULL;

    if (s && (s->shard != k || s->shards != g->shards)) {
        err_set("%s: is not shard %d of %d, as its name says", name, k, g->shards);
        gguf_close(s);
        s = NULL;
    }
    if (s)
        s->own = name;
    else
        free(name);
    return s;
}

static int by_name(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    const size_t n = (size_t)(x->own_bytes < y->own_bytes ? x->own_bytes : y->own_bytes);
    const int order = memcmp(x->own, y->own, n);
    return order ? order : (x->own_bytes > y->own_bytes) - (x->own_bytes < y->own_bytes);
}

/* Nonzero after err_set(): two shards have a tensor of one name. */
static int check_names(const struct gguf *g)
{
    const struct gguf_tensor **all;
    int64_t n = 0;
    int e = 0;

    for (const struct gguf *s = g; s; s = s->next)
        n += s->n_tensors;
    if (!(all = malloc((size_t)(n + 1) * sizeof *all)))
        return err_set("%s: no memory for the %" PRId64 " tensors of its shards", g->file, n);
    n = 0;
    for (const struct gguf *s = g; s; s = s->next)
        for (int64_t i = 0; i < s->n_tensors; i++)
            all[n++] = &s->tensor[i];
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int64_t i = 1; !e && i < n; i++)
        if (by_name(&all[i - 1], &all[i]) == 0) {
            const int swap = strcmp(all[i - 1]->file, all[i]->file) > 0;
            e = err_set("%s: tensor %s is in another shard, too: %s", all[i - !swap]->file,
                        all[i]->name, all[i - swap]->file);
        }
    free(all);
    return e;
}

struct gguf *gguf_open(const char *file)
{
    struct gguf *g = gguf_open_alone(file), *last = g;

    for (int k = 1; g && k <= g->shards; k++) {
        struct gguf *s = k == g->shard ? NULL : open_shard(g, k);
        if (s) {
            last->next = s;
            last = s;
        }
    }
    if (g && g->next && check_names(g)) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

static int is_there(const struct gguf *g, int k)
{
    for (; g; g = g->next)
        if (g->shard == k)
            return 1;
    return 0;
}

int gguf_missing(const struct gguf *g, char *why, size_t size)
{
    int n = 0;

    *why = 0;
    for (int k = 1; k <= g->shards; k++)
        if (!is_there(g, k) && n++ == 0) {
            gguf_close(open_shard(g, k)); /* once more, for the reason */
            snprintf(why, size, "%s", err_text());
        }
    return n;
}

/* ---- tensors ---- */

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    struct guess like = {name, NULL, 0};
    char why[1024];

    for (const struct gguf *s = g; s; s = s->next)
        for (int64_t i = 0; i < s->n_tensors; i++)
            if (strcmp(s->tensor[i].name, name) == 0)
                return &s->tensor[i];
    for (const struct gguf *s = g; s; s = s->next)
        for (int64_t i = 0; i < s->n_tensors; i++)
            guess_among(&like, s->tensor[i].name);
    const int missing = gguf_missing(g, why, sizeof why);
    err_set("%s: no tensor %s", g->file, name);
    if (like.best)
        err_more("; like it: %s", like.best);
    if (missing)
        err_more("; it may be in one of the %d shards of %d that are not read: %s", missing,
                 g->shards, why);
    return NULL;
}

void gguf_shape_text(const struct gguf_tensor *t, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, t->rank > GGUF_RANK ? "[..." : "[");

    for (uint32_t i = 0; t->rank <= GGUF_RANK && i < t->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i ? "," : "", t->dim[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}
