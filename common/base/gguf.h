/* gguf.h - GGUF files: the tensors of a language model, many of them quantised
 * (github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian).
 *
 * Nothing that a file says is trusted: each count and length is compared with the bytes that are left
 * before it is used.  Messages begin with the file's name. */
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

enum { GGUF_RANK = 4, GGUF_NAME = 64 };

/* A tensor: its rows, which are whole blocks, one after the other. */
struct gguf_tensor {
    char name[GGUF_NAME];
    const struct gguf_type *type;
    int rank;
    int64_t dim[GGUF_RANK]; /* slowest first (a file has them the other way round) */
    int64_t bytes;
    const unsigned char *data; /* gguf_close() takes it away */
};

/* What a file holds: its tensors, in its order. */
struct gguf {
    const char *file;
    int version;
    int64_t n_keys;
    const struct gguf_tensor *tensor;
    int64_t n_tensors;
};

/* NULL after err_set(): "m.gguf: version 1 of the format, 2 and 3 are read".  The file is mapped, not
 * read; `file` must outlive what is returned. */
struct gguf *gguf_open(const char *file);
/* The same from its `n` bytes in memory, which must outlive it. */
struct gguf *gguf_parse(const char *file, const unsigned char *bytes, size_t n);
void gguf_close(struct gguf *g);

/* By name; NULL after err_set(), with a name like it. */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);
/* "[4096,14336]", the slowest axis first. */
void gguf_shape_text(const struct gguf_tensor *t, char *text, size_t size);

#endif
