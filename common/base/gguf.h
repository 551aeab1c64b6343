/* gguf.h - GGUF files: the tensors of a language model, many of them quantised
 * (github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian).
 *
 * Nothing that a file says is trusted: each count and length is compared with the bytes that are left
 * before it is used.  Messages begin with the file's name.
 *
 * What is wrong with one tensor alone is in the way of nobody who reads another: a type that is not
 * known, no elements, more axes or elements than are read; its offset is ignored then.  Names are printable (quote.h): a name with other bytes
 * is listed, and asked for, with each of them as \xHH. */
#ifndef GGUF_H
#define GGUF_H

#include <stddef.h>
#include <stdint.h>

/* A type of tensors: blocks of `block` elements, in so many bytes. */
struct gguf_type {
    uint32_t id; /* in a file */
    const char *name;
    int block, bytes;
};

enum { GGUF_RANK = 4, GGUF_NAME = 512 }; /* ggml's own names have 63 bytes at most */

/* A tensor: its rows, which are whole blocks, one after the other. */
struct gguf_tensor {
    const char *file;
    char *name;                   /* shorter than GGUF_NAME */
    const unsigned char *own;     /* its name in the file, which no zero ends */
    uint64_t own_bytes;           /* of that name */
    int is_cut;                   /* the name is longer there */
    uint32_t type_id;             /* in the file */
    const struct gguf_type *type; /* NULL: not known */
    uint32_t rank;                /* over GGUF_RANK: the lengths are not kept; 0: a scalar */
    uint64_t dim[GGUF_RANK];      /* slowest first (a file has them the other way round) */
    int64_t bytes;                /* -1: not known, or 2^63 or more */
    const unsigned char *data;    /* gguf_close() takes it away; NULL: see gguf_check() */
};

/* What a file holds: its tensors, in its order.  A model may be in several files, its shards
 * (split.no, split.count, split.tensors.count): m-00001-of-00003.gguf and so on. */
struct gguf {
    const char *file;
    struct gguf *next; /* another shard of the same model, or NULL */
    char *own;         /* the file's name, to be freed; or NULL */
    int shard, shards; /* this one's number, from 1 on, and of how many; 0: it is no shard */
    int64_t all;       /* the tensors of all shards, as this one says; 0: it does not */
    int version;
    int64_t n_keys;
    const struct gguf_tensor *tensor;
    int64_t n_tensors;
};

/* NULL after err_set(): "m.gguf: version 1 of the format, 2 and 3 are read".  The file is mapped, not
 * read; `file` must outlive what is returned.  Behind a shard come the others that stand beside it
 * and can be read; a tensor that two of them have is an error. */
struct gguf *gguf_open(const char *file);
/* The same of this file alone. */
struct gguf *gguf_open_alone(const char *file);
/* The same from its `n` bytes in memory, which must outlive it. */
struct gguf *gguf_parse(const char *file, const unsigned char *bytes, size_t n);
/* And of the shards behind it. */
void gguf_close(struct gguf *g);

/* By name, in all shards that are there; NULL after err_set(), with a name like it, and with the
 * shard that is not there. */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);
/* Nonzero after err_set(): its elements cannot be read, or it has none. */
int gguf_check(const struct gguf_tensor *t);
/* How many shards are not there; in `why` the reason for the first of them. */
int gguf_missing(const struct gguf *g, char *why, size_t size);
/* "[4096,14336]", the slowest axis first; "[]" of a scalar; "[...]" of more axes than are read. */
void gguf_shape_text(const struct gguf_tensor *t, char *text, size_t size);

#endif
