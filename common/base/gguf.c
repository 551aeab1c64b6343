/* Reads GGUF files (gguf.h).
 *
 *     "GGUF"  version u32  tensors u64  keys u64
 *     each key:     name (length u64, bytes)  type u32  value
 *     each tensor:  name  axes u32  lengths u64 (fastest first)  type u32  offset u64
 *     the data, from the next multiple of general.alignment on; offsets count from there */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/gguf.h"
#include "common/base/number.h"
#include "common/base/quote.h"

static const struct gguf_type types[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},      {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
    {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},  {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},
    {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* The bytes of a key's value, by its type; a string and an array say theirs themselves. */
enum { U32 = 4, F32 = 6, STRING = 8, ARRAY = 9, U64 = 10, I64 = 11, N_VALUES = 13 };
static const unsigned char value_bytes[N_VALUES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Is a value of that type a whole number? */
static int is_whole(uint64_t type)
{
    return type < F32 || type == U64 || type == I64;
}

/* What stands in every key and every tensor: a name, types, lengths. */
enum { MAX_SHARDS = 65535 }; /* a u16 */
enum { LEAST_KEY = 8 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };

/* ---- what is left of the file ---- */

struct cursor {
    const unsigned char *at, *end;
};

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

/* The next n bytes; NULL: there are fewer. */
static const unsigned char *take(struct cursor *c, uint64_t n)
{
    const unsigned char *at = c->at;
    if (n > left(c))
        return NULL;
    c->at += n;
    return at;
}

/* A little-endian number of so many bytes; nonzero: there are fewer. */
static int take_number(struct cursor *c, int bytes, uint64_t *x)
{
    const unsigned char *at = take(c, (uint64_t)bytes);

    *x = 0;
    for (int i = bytes - 1; at && i >= 0; i--)
        *x = *x << 8 | at[i];
    return !at;
}

/* Text in the file, which no zero ends. */
struct word {
    const unsigned char *c;
    size_t n;
};

static int take_word(struct cursor *c, struct word *w)
{
    uint64_t n;

    if (take_number(c, 8, &n) || !(w->c = take(c, n)))
        return -1;
    w->n = (size_t)n;
    return 0;
}

static int is_word(const struct word *w, const char *text)
{
    return w->n == strlen(text) && memcmp(w->c, text, w->n) == 0;
}

/* Printable, cut to fit. */
static const char *word_text(const struct word *w, char text[GGUF_NAME])
{
    quote_bytes((const char *)w->c, w->n, text, GGUF_NAME);
    return text;
}

static int by_text(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    const int order = memcmp(x->c, y->c, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sorts the words; one that is there twice, or NULL. */
static const struct word *twice(struct word *w, int64_t n)
{
    qsort(w, (size_t)n, sizeof *w, by_text);
    for (int64_t i = 1; i < n; i++)
        if (by_text(&w[i - 1], &w[i]) == 0)
            return &w[i];
    return NULL;
}

/* ---- the file ---- */

struct reader {
    struct gguf g; /* the first member, which the caller has */
    struct cursor c;
    size_t size; /* of the file */
    uint64_t alignment;
    int64_t split_no, split_count;
    const unsigned char *mapped; /* to be unmapped; or NULL */
    struct gguf_tensor *tensor;
    struct word *word; /* names of keys, then of tensors */
};

/* A count of things that have so many bytes at least must fit into what is left. */
static int check_count(const struct reader *r, const char *what, uint64_t n, size_t least)
{
    char text[NUMBER_TEXT];

    if (n <= left(&r->c) / least)
        return 0;
    return err_set("is said to have %" PRIu64 " %s, and has %s left for them", n, what,
                   number_bytes((double)left(&r->c), text));
}

static int read_head(struct reader *r)
{
    const unsigned char *magic = take(&r->c, 4);
    uint64_t version, tensors, keys;
    char text[GGUF_NAME];

    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        const struct word first = {r->c.at - (magic ? 4 : 0), magic ? 4 : left(&r->c)};
        return r->size ? err_set("begins with \"%s\": not GGUF", word_text(&first, text))
                       : err_set("is empty: not GGUF");
    }
    if (take_number(&r->c, 4, &version))
        return err_set("ends within its head");
    if (version && (version & 0xffff) == 0)
        return err_set("big-endian files are not read");
    if (version != 2 && version != 3)
        return err_set("version %" PRIu64 " of the format, 2 and 3 are read", version);
    if (take_number(&r->c, 8, &tensors) || take_number(&r->c, 8, &keys))
        return err_set("ends within its head");
    r->g.version = (int)version;
    if (check_count(r, "keys", keys, LEAST_KEY) || check_count(r, "tensors", tensors, LEAST_TENSOR))
        return -1;
    r->g.n_keys = (int64_t)keys;
    r->g.n_tensors = (int64_t)tensors;
    return 0;
}

/* ---- keys ---- */

static int skip_array(struct reader *r, const char *name)
{
    uint64_t type, n;
    struct word text;

    if (take_number(&r->c, 4, &type) || take_number(&r->c, 8, &n))
        return err_set("ends within key %s", name);
    if (type == ARRAY)
        return err_set("key %s is an array of arrays, which is not read", name);
    if (type >= N_VALUES)
        return err_set("key %s is an array of type %" PRIu64 ": 0 to %d are known", name, type,
                       N_VALUES - 1);
    if (type != STRING)
        return n > left(&r->c) / value_bytes[type] || !take(&r->c, n * value_bytes[type])
                   ? err_set("ends within key %s", name)
                   : 0;
    for (; n; n--)
        if (take_word(&r->c, &text))
            return err_set("ends within key %s", name);
    return 0;
}

static int read_alignment(struct reader *r, uint64_t type)
{
    if (type != U32)
        return err_set("general.alignment has type %" PRIu64 ", it is a u32 (type 4)", type);
    if (take_number(&r->c, 4, &r->alignment))
        return err_set("ends within key general.alignment");
    if (!r->alignment || r->alignment & (r->alignment - 1))
        return err_set("general.alignment = %" PRIu64 ": a power of two", r->alignment);
    return 0;
}

/* Where a key about shards belongs; NULL: the key is another. */
static int64_t *split_of(struct reader *r, const struct word *key)
{
    return is_word(key, "split.no")              ? &r->split_no
           : is_word(key, "split.count")         ? &r->split_count
           : is_word(key, "split.tensors.count") ? &r->g.all
                                                 : NULL;
}

/* Its value, a whole number; one that cannot be right is none. */
static int read_split(struct reader *r, const char *name, uint64_t type, int64_t *to)
{
    uint64_t x;

    if (take_number(&r->c, value_bytes[type], &x))
        return err_set("ends within key %s", name);
    *to = x < INT32_MAX ? (int64_t)x : 0;
    return 0;
}

static int read_key(struct reader *r, int64_t i)
{
    struct word *key = &r->word[i], text;
    char name[GGUF_NAME];
    uint64_t type;

    if (take_word(&r->c, key))
        return err_set("ends within key %" PRId64 " of %" PRId64, i + 1, r->g.n_keys);
    word_text(key, name);
    if (take_number(&r->c, 4, &type))
        return err_set("ends within key %s", name);
    if (is_word(key, "general.alignment"))
        return read_alignment(r, type);
    if (type >= N_VALUES)
        return err_set("key %s has type %" PRIu64 ": 0 to %d are known", name, type, N_VALUES - 1);
    if (type == ARRAY)
        return skip_array(r, name);
    if (is_whole(type) && split_of(r, key))
        return read_split(r, name, type, split_of(r, key));
    if (type == STRING ? take_word(&r->c, &text) : !take(&r->c, value_bytes[type]))
        return err_set("ends within key %s", name);
    return 0;
}

static int read_keys(struct reader *r)
{
    char text[GGUF_NAME];

    for (int64_t i = 0; i < r->g.n_keys; i++)
        if (read_key(r, i))
            return -1;
    const int is_shard = r->split_count > 1 && r->split_count <= MAX_SHARDS && r->split_no >= 0 &&
                         r->split_no < r->split_count;
    r->g.shard = is_shard ? (int)r->split_no + 1 : 0;
    r->g.shards = is_shard ? (int)r->split_count : 0;
    const struct word *again = twice(r->word, r->g.n_keys);
    return again ? err_set("key %s is there twice", word_text(again, text)) : 0;
}

/* ---- tensors ---- */

static const struct gguf_type *type_of(uint64_t id)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}

/* Its axes; they are slowest first from now on.  gguf_check() refuses what they cannot be. */
static int read_axes(struct reader *r, struct gguf_tensor *t)
{
    uint64_t rank;

    if (take_number(&r->c, 4, &rank))
        return err_set("ends within tensor %s", t->name);
    t->rank = (uint32_t)rank;
    if (rank > GGUF_RANK)
        return take(&r->c, 8 * rank) ? 0 : err_set("ends within tensor %s", t->name);
    for (int i = (int)rank - 1; i >= 0; i--)
        if (take_number(&r->c, 8, &t->dim[i]))
            return err_set("ends within tensor %s", t->name);
    return 0;
}

/* Its elements in a row; a scalar is a row of one. */
static uint64_t row_of(const struct gguf_tensor *t)
{
    return t->rank ? t->dim[t->rank - 1] : 1;
}

/* The product of its lengths and of `bytes` per block; -1: 2^63 or more. */
static int64_t product(const struct gguf_tensor *t, int block, int bytes)
{
    uint64_t all = row_of(t) / (uint64_t)block;
    int huge = 0;

    for (uint32_t i = 0; i < t->rank; i++)
        if (!t->dim[i])
            return 0;
    for (uint32_t i = 0; i + 1 < t->rank; i++)
        huge |= __builtin_mul_overflow(all, t->dim[i], &all);
    huge |= __builtin_mul_overflow(all, (uint64_t)bytes, &all);
    return huge || all > INT64_MAX ? -1 : (int64_t)all;
}

/* Its type, and the bytes that follow from that. */
static int read_type(struct reader *r, struct gguf_tensor *t)
{
    uint64_t id;

    if (take_number(&r->c, 4, &id))
        return err_set("ends within tensor %s", t->name);
    t->type_id = (uint32_t)id;
    t->type = type_of(id);
    const int known = t->type && t->rank <= GGUF_RANK && row_of(t) % (uint64_t)t->type->block == 0;
    /* fewer bytes than elements: each element must have a number, too */
    t->bytes = known && product(t, 1, 1) >= 0 ? product(t, t->type->block, t->type->bytes) : -1;
    return 0;
}

int gguf_check(const struct gguf_tensor *t)
{
    char shape[128];

    if (t->is_cut)
        return err_set("%s: the name of tensor %s... has %" PRIu64 " bytes, too many to be read",
                       t->file, t->name, t->own_bytes);
    if (t->rank > GGUF_RANK)
        return err_set("%s: tensor %s has %" PRIu32 " axes, at most %d are read", t->file, t->name,
                       t->rank, GGUF_RANK);
    if (!t->type)
        return err_set("%s: tensor %s has type %" PRIu32 ", which is not known", t->file, t->name,
                       t->type_id);
    if (row_of(t) % (uint64_t)t->type->block)
        return err_set("%s: tensor %s has rows of %" PRIu64 ": %s has blocks of %d", t->file,
                       t->name, row_of(t), t->type->name, t->type->block);
    if (t->data)
        return 0;
    gguf_shape_text(t, shape, sizeof shape);
    if (t->bytes < 0)
        return err_set("%s: tensor %s is %s: it has 2^63 %s or more", t->file, t->name, shape,
                       product(t, 1, 1) < 0 ? "elements" : "bytes");
    return err_set("%s: tensor %s is %s: it has no elements", t->file, t->name, shape);
}

static int read_name(struct reader *r, int64_t i)
{
    struct gguf_tensor *t = &r->tensor[i];
    struct word *name = &r->word[i];
    char text[GGUF_NAME];

    if (take_word(&r->c, name))
        return err_set("ends within tensor %" PRId64 " of %" PRId64, i + 1, r->g.n_tensors);
    if (!name->n)
        return err_set("tensor %" PRId64 " has no name", i + 1);
    t->is_cut = quote_bytes((const char *)name->c, name->n, text, sizeof text) < name->n;
    t->own = name->c;
    t->own_bytes = name->n;
    t->file = r->g.file;
    t->name = strdup(text);
    return t->name ? 0 : err_set("no memory for its %" PRId64 " tensors", r->g.n_tensors);
}

/* One tensor; its offset. */
static int read_tensor(struct reader *r, int64_t i, uint64_t *offset)
{
    struct gguf_tensor *t = &r->tensor[i];

    if (read_name(r, i) || read_axes(r, t) || read_type(r, t))
        return -1;
    return take_number(&r->c, 8, offset) ? err_set("ends within tensor %s", t->name) : 0;
}

/* Its data, from `from` on.  Where those of a tensor would be that cannot be read is no matter. */
static int locate(const struct reader *r, struct gguf_tensor *t, uint64_t from, uint64_t offset)
{
    char its[NUMBER_TEXT], files[NUMBER_TEXT];

    if (t->bytes <= 0 || t->is_cut)
        return 0; /* it has none, or nobody knows how many */
    if (offset % r->alignment)
        return err_set("tensor %s is at %" PRIu64 " of the data, no multiple of %" PRIu64, t->name,
                       offset, r->alignment);
    if (from > r->size || offset > r->size - from || (uint64_t)t->bytes > r->size - from - offset)
        return err_set("tensor %s ends at %s, the file at %s", t->name,
                       number_bytes((double)from + (double)offset + (double)t->bytes, its),
                       number_bytes((double)r->size, files));
    t->data = r->c.end - r->size + from + offset;
    return 0;
}

static int read_tensors(struct reader *r)
{
    const int64_t n = r->g.n_tensors;
    uint64_t *offset = malloc((size_t)(n + 1) * sizeof *offset);
    char text[GGUF_NAME];
    int e = offset ? 0 : err_set("no memory for its %" PRId64 " tensors", n);

    for (int64_t i = 0; !e && i < n; i++)
        e = read_tensor(r, i, &offset[i]);
    const uint64_t ends = r->size - left(&r->c);
    const uint64_t from = (ends + r->alignment - 1) / r->alignment * r->alignment;
    for (int64_t i = 0; !e && i < n; i++)
        e = locate(r, &r->tensor[i], from, offset[i]);
    const struct word *again = e ? NULL : twice(r->word, n);
    if (again)
        e = err_set("two tensors are called %s", word_text(again, text));
    free(offset);
    return e;
}

/* ---- open and close ---- */

static int read_all(struct reader *r)
{
    if (read_head(r))
        return -1;
    const int64_t tensors = r->g.n_tensors, keys = r->g.n_keys;
    r->tensor = calloc((size_t)tensors + 1, sizeof *r->tensor);
    r->word = malloc((size_t)(tensors > keys ? tensors : keys) * sizeof *r->word + 1);
    if (!r->tensor || !r->word)
        return err_set("no memory for its %" PRId64 " tensors", tensors);
    r->g.tensor = r->tensor;
    return read_keys(r) || read_tensors(r) ? -1 : 0;
}

struct gguf *gguf_parse(const char *file, const unsigned char *bytes, size_t n)
{
    struct reader *r = calloc(1, sizeof *r);

    if (!r)
        return err_null("%s: no memory to read it", file);
    *r = (struct reader){{.file = file}, {bytes, bytes + n}, .size = n, .alignment = 32};
    const int e = read_all(r);
    free(r->word);
    r->word = NULL;
    if (e) {
        err_at("%s", file);
        gguf_close(&r->g);
        return NULL;
    }
    return &r->g;
}

struct gguf *gguf_open_alone(const char *file)
{
    const char *why = file_unreadable(file);
    const int fd = why ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    struct stat is;

    if (fd < 0 || fstat(fd, &is)) {
        err_set("%s: %s", file, why ? why : strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    const size_t n = (size_t)is.st_size;
    void *mapped = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    const int error = errno;
    close(fd);
    if (mapped == MAP_FAILED)
        return err_null("%s: cannot be mapped: %s", file, strerror(error));
    struct gguf *g = gguf_parse(file, n ? mapped : (const unsigned char *)"", n);
    if (g)
        ((struct reader *)g)->mapped = mapped;
    else if (mapped)
        munmap(mapped, n);
    return g;
}

void gguf_close(struct gguf *g)
{
    struct reader *r = (struct reader *)g;

    while (r) {
        struct reader *next = (struct reader *)r->g.next;
        if (r->mapped)
            munmap((void *)r->mapped, r->size);
        for (int64_t i = 0; r->tensor && i < r->g.n_tensors; i++)
            free(r->tensor[i].name);
        free(r->tensor);
        free(r->g.own);
        free(r);
        r = next;
    }
}
