/* GGUF files: what one that another program wrote holds, every refusal by its message, and mutated
 * files, each of which is read or refused, with no byte read outside of it (a build with a sanitizer
 * sees that: each is in memory of its own length).
 *
 *     tests/gguf [COUNT [FIRST]]        mutated files, default: 20000, from 0 */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/gguf.h"
#include "tests/chance.h"
#include "tests/tap.h"

/* ---- files as text ---- */

enum { MOST = 1 << 15 };
struct bytes {
    unsigned char b[MOST];
    size_t n;
};

static void put(struct bytes *to, const void *from, size_t n)
{
    if (to->n + n > MOST) {
        printf("Bail out! a file of over %d bytes\n", MOST);
        exit(EXIT_FAILURE);
    }
    memcpy(to->b + to->n, from, n);
    to->n += n;
}

static void put_number(struct bytes *to, uint64_t x, int bytes)
{
    for (; bytes; bytes--, x >>= 8)
        put(to, &(unsigned char){(unsigned char)x}, 1);
}

/* One word: u8:1 u32:3 u64:18446744073709551615, s:text (its length and it), raw:GGUF, pad:32 (zeros
 * up to a multiple), zeros:64. */
static void put_item(struct bytes *to, const char *item, size_t n)
{
    const char *value = memchr(item, ':', n) + 1;
    const size_t length = n - (size_t)(value - item);
    const uint64_t x = strtoull(value, NULL, 10);

    if (*item == 'u') {
        put_number(to, x, atoi(item + 1) / 8);
    } else if (*item == 's') {
        put_number(to, length, 8);
        put(to, value, length);
    } else if (*item == 'r') {
        put(to, value, length);
    } else if (*item == 'p') {
        while (to->n % x)
            put(to, "", 1);
    } else {
        for (uint64_t i = 0; i < x; i++)
            put(to, "", 1);
    }
}

static struct bytes *bytes_of(const char *text)
{
    static struct bytes b;

    b.n = 0;
    while (*(text += strspn(text, " "))) {
        const size_t n = strcspn(text, " ");
        put_item(&b, text, n);
        text += n;
    }
    return &b;
}

/* Read from memory of just its length, which is returned to be freed after the file is closed. */
static struct gguf *parse(const unsigned char *b, size_t n, unsigned char **memory)
{
    *memory = malloc(n ? n : 1);
    memcpy(*memory, b, n);
    return gguf_parse("m.gguf", *memory, n);
}

/* ---- refusals ---- */

#define HEAD(tensors, keys) "raw:GGUF u32:3 u64:" #tensors " u64:" #keys " "
#define ALIGN(x) "s:general.alignment u32:4 u32:" #x " "
#define TENSOR "s:a u32:1 u64:4 u32:0 u64:0 "
#define FULL " pad:32 zeros:4096"

static const struct {
    const char *text, *sentence;
} refusals[] = {
    {"", "is empty: not GGUF"},
    {"raw:PK", "begins with \"PK\": not GGUF"},
    {"raw:GGUf zeros:100", "begins with \"GGUf\": not GGUF"},
    {"u8:27 raw:[31m", "begins with \"\\x1b[31\": not GGUF"},
    {"raw:GGUF", "ends within its head"},
    {"raw:GGUF u32:3 u64:0", "ends within its head"},
    {"raw:GGUF u32:50331648 zeros:100", "big-endian files are not read"},
    {"raw:GGUF u32:1 zeros:100", "version 1 of the format, 2 and 3 are read"},
    {"raw:GGUF u32:0 zeros:100", "version 0 of the format, 2 and 3 are read"},
    {HEAD(0, 18446744073709551615) FULL,
     "is said to have 18446744073709551615 keys, and has 4.0 KiB left for them"},
    {HEAD(1000000, 0) FULL, "is said to have 1000000 tensors, and has 4.0 KiB left for them"},
    {HEAD(0, 1) "u64:4096 zeros:8", "ends within key 1 of 1"},
    {HEAD(0, 1) "u64:18446744073709551615 zeros:8", "ends within key 1 of 1"},
    {HEAD(0, 1) "s:a u32:13" FULL, "key a has type 13: 0 to 12 are known"},
    {HEAD(0, 1) "s:ab u32:10 u32:0", "ends within key ab"},
    {HEAD(0, 1) "s:a u32:8 u64:4096 zeros:10", "ends within key a"},
    {HEAD(0, 1) "s:a u32:9 u32:9 u64:1" FULL, "key a is an array of arrays, which is not read"},
    {HEAD(0, 1) "s:a u32:9 u32:77 u64:1" FULL, "key a is an array of type 77: 0 to 12 are known"},
    {HEAD(0, 1) "s:a u32:9 u32:10 u64:2305843009213693952" FULL, "ends within key a"},
    {HEAD(0, 1) "s:a u32:9 u32:8 u64:18446744073709551615" FULL, "ends within key a"},
    {HEAD(0, 1) "s:general.alignment u32:5 u32:32" FULL,
     "general.alignment has type 5, it is a u32 (type 4)"},
    {HEAD(0, 1) ALIGN(0) FULL, "general.alignment = 0: a power of two"},
    {HEAD(0, 1) ALIGN(48) FULL, "general.alignment = 48: a power of two"},
    {HEAD(0, 2) "s:a u32:0 u8:1 s:a u32:0 u8:2" FULL, "key a is there twice"},
    {HEAD(1, 0) "s: u32:1 u64:4 u32:0 u64:0" FULL, "tensor 1 has no name"},
    {HEAD(1, 0) "s:a u32:4294967295" FULL, "ends within tensor a"},
    {HEAD(0, 1) "s:split.count u32:2 u8:3", "ends within key split.count"},
    {HEAD(1, 0) "s:a u32:1 u64:4 u32:0 u64:16" FULL,
     "tensor a is at 16 of the data, no multiple of 32"},
    {HEAD(1, 1) ALIGN(1024) "s:a u32:1 u64:4 u32:0 u64:32" FULL,
     "tensor a is at 32 of the data, no multiple of 1024"},
    {HEAD(1, 0) "s:a u32:1 u64:2048 u32:0 u64:0" FULL,
     "tensor a ends at 8.1 KiB, the file at 4.1 KiB"},
    {HEAD(1, 0) "s:a u32:1 u64:4 u32:0 u64:18446744073709551584" FULL,
     "tensor a ends at 16.0 EiB, the file at 4.1 KiB"},
    {HEAD(1, 0) TENSOR, "tensor a ends at 80 bytes, the file at 57 bytes"},
    {HEAD(2, 0) TENSOR TENSOR FULL, "two tensors are called a"},
    {HEAD(2, 0) TENSOR "s:bcdef u32:1 u64:4 u32:0 zeros:7", "ends within tensor bcdef"},
};

static void refused(void)
{
    unsigned char *memory;
    char want[512];

    for (size_t i = 0; i < COUNT(refusals); i++) {
        const struct bytes *b = bytes_of(refusals[i].text);
        struct gguf *g = parse(b->b, b->n, &memory);
        snprintf(want, sizeof want, "m.gguf: %s", refusals[i].sentence);
        if (!ok(!g && strcmp(err_text(), want) == 0, "refused: %s", refusals[i].sentence))
            printf("# %s\n", g ? "accepted" : err_text());
        gguf_close(g);
        free(memory);
    }
}

/* ---- tensors that are not read, beside one that is ---- */

#define A16 "aaaaaaaaaaaaaaaa"
#define A128 A16 A16 A16 A16 A16 A16 A16 A16
static const struct {
    const char *tensor, *sentence, *shape;
} odd[] = {
    {"s:tag u32:1 u64:0 u32:0 u64:32 ", "tensor tag is [0]: it has no elements", "[0]"},
    {"s:tag u32:2 u64:0 u64:3 u32:0 u64:0 ", "tensor tag is [3,0]: it has no elements", "[3,0]"},
    {"s:tag u32:2 u64:4 u64:0 u32:12 u64:1048576 ",
     "tensor tag has rows of 4: q4_k has blocks of 256", "[0,4]"},
    {"s:tag u32:2 u64:256 u64:0 u32:12 u64:18446744073709551584 ",
     "tensor tag is [0,256]: it has no elements", "[0,256]"},
    {"s:tag u32:0 u32:8 u64:0 ", "tensor tag has rows of 1: q8_0 has blocks of 32", "[]"},
    {"s:tag u32:1 u64:4 u32:139 u64:0 ", "tensor tag has type 139, which is not known", "[4]"},
    {"s:tag u32:1 u64:9223372036854775807 u32:41 u64:0 ",
     "tensor tag has type 41, which is not known", "[9223372036854775807]"},
    {"s:tag u32:1 u64:18446744073709551615 u32:41 u64:18446744073709551615 ",
     "tensor tag has type 41, which is not known", "[18446744073709551615]"},
    {"s:tag u32:2 u64:4294967296 u64:4294967296 u32:139 u64:0 ",
     "tensor tag has type 139, which is not known", "[4294967296,4294967296]"},
    {"s:tag u32:2 u64:0 u64:9223372036854775808 u32:0 u64:0 ",
     "tensor tag is [9223372036854775808,0]: it has no elements", "[9223372036854775808,0]"},
    {"s:tag u32:2 u64:9223372036854775808 u64:0 u32:12 u64:33 ",
     "tensor tag is [0,9223372036854775808]: it has no elements", "[0,9223372036854775808]"},
    {"s:tag u32:4 u64:4294967296 u64:4294967296 u64:4294967296 u64:0 u32:0 u64:1 ",
     "tensor tag is [0,4294967296,4294967296,4294967296]: it has no elements",
     "[0,4294967296,4294967296,4294967296]"},
    {"s:tag u32:2 u64:4294967296 u64:4294967296 u32:0 u64:18446744073709551584 ",
     "tensor tag is [4294967296,4294967296]: it has 2^63 elements or more",
     "[4294967296,4294967296]"},
    {"s:tag u32:1 u64:9223372036854775808 u32:12 u64:0 ",
     "tensor tag is [9223372036854775808]: it has 2^63 elements or more", "[9223372036854775808]"},
    {"s:tag u32:1 u64:9223372036854775807 u32:0 u64:0 ",
     "tensor tag is [9223372036854775807]: it has 2^63 bytes or more", "[9223372036854775807]"},
    {"s:tag u32:1 u64:4 u32:139 u64:7 ", "tensor tag has type 139, which is not known", "[4]"},
    {"s:tag u32:1 u64:4 u32:4294967295 u64:1048576 ",
     "tensor tag has type 4294967295, which is not known", "[4]"},
    {"s:tag u32:2 u64:4544 u64:2 u32:12 u64:0 ",
     "tensor tag has rows of 4544: q4_k has blocks of 256", "[2,4544]"},
    {"s:tag u32:5 u64:1 u64:1 u64:1 u64:1 u64:1 u32:0 u64:0 ",
     "tensor tag has 5 axes, at most 4 are read", "[...]"},
    {"s:tag u32:0 u32:0 u64:0 ", NULL, "[]"},
    {"u64:64 raw:" A16 A16 A16 A16 " u32:1 u64:4 u32:0 u64:0 ", NULL, "[4]"},
    {"u64:511 raw:" A128 A128 A128 A16 A16 A16 A16 A16 A16 A16
     "aaaaaaaaaaaaaaa u32:1 u64:4 u32:0 u64:0 ",
     NULL, "[4]"},
    {"u64:512 raw:" A128 A128 A128 A128 " u32:1 u64:4 u32:0 u64:0 ",
     " has 512 bytes, too many to be read", "[4]"},
    {"u64:512 raw:" A128 A128 A128 A128 " u32:1 u64:4 u32:0 u64:1048577 ",
     " has 512 bytes, too many to be read", "[4]"},
};

/* n 1 2 3 4 is read, and the other by its sentence. */
static void beside(void)
{
    unsigned char *memory;
    char text[2048], shape[128];

    for (size_t i = 0; i < COUNT(odd); i++) {
        snprintf(text, sizeof text, "%s%s%s", HEAD(2, 0) "s:n u32:1 u64:4 u32:0 u64:0 ",
                 odd[i].tensor, "pad:32 u32:1 u32:2 u32:3 u32:4 zeros:16");
        const struct bytes *b = bytes_of(text);
        struct gguf *g = parse(b->b, b->n, &memory);
        const struct gguf_tensor *n = g ? gguf_find(g, "n") : NULL;
        ok(n && !gguf_check(n) && n->bytes == 16 && n->data[12] == 4,
           "tensor %zu of those that are odd: the one beside it is read", i);
        const int e = g ? gguf_check(&g->tensor[1]) : -1;
        if (!ok(g && !e == !odd[i].sentence && (!e || strstr(err_text(), odd[i].sentence)), "%s",
                odd[i].sentence ? odd[i].sentence : "it is read as well"))
            printf("# %s\n", err_text());
        *shape = 0;
        if (g)
            gguf_shape_text(&g->tensor[1], shape, sizeof shape);
        ok(strcmp(shape, odd[i].shape) == 0, "its shape is %s", odd[i].shape);
        gguf_close(g);
        free(memory);
    }
}

/* Names with bytes that a terminal must not get. */
static void printable_names(void)
{
    static const struct {
        const char *bytes, *shown;
    } names[] = {
        {"u64:4 u8:27 raw:[1m", "\\x1b[1m"},
        {"u64:2 raw:a u8:10", "a\\x0a"},
        {"u64:2 raw:a u8:0", "a\\x00"},
        {"u64:3 raw:a u8:9 raw:b", "a\\x09b"},
        {"u64:1 u8:127", "\\x7f"},
        {"u64:2 u8:194 u8:155", "\\xc2\\x9b"},
        {"u64:2 raw:a u8:255", "a\\xff"},
        {"u64:2 raw:a u8:195", "a\\xc3"},
        {"u64:2 u8:195 u8:188", "\xc3\xbc"},
        {"u64:2 u8:192 u8:175", "\\xc0\\xaf"},
        {"u64:3 u8:226 u8:128 u8:174", "\\xe2\\x80\\xae"},
    };
    unsigned char *memory;
    char text[512];

    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(text, sizeof text, HEAD(1, 0) "%s u32:1 u64:4 u32:0 u64:0" FULL, names[i].bytes);
        const struct bytes *b = bytes_of(text);
        struct gguf *g = parse(b->b, b->n, &memory);
        ok(g && gguf_find(g, names[i].shown), "a tensor is called %s", names[i].shown);
        gguf_close(g);
        free(memory);
    }
}

/* ---- what is read ---- */

static void small_files(void)
{
    static const char *const good[] = {
        HEAD(0, 0),
        "raw:GGUF u32:2 u64:1 u64:0 " TENSOR "pad:32 zeros:16",
        HEAD(1, 1) ALIGN(1) TENSOR "zeros:16",
        HEAD(1, 1) ALIGN(4096) "s:a u32:1 u64:4 u32:0 u64:4096 pad:4096 zeros:4112",
        HEAD(2, 0) TENSOR "s:b u32:4 u64:32 u64:1 u64:2 u64:1 u32:8 u64:32" FULL,
    };
    unsigned char *memory;

    for (size_t i = 0; i < COUNT(good); i++) {
        const struct bytes *b = bytes_of(good[i]);
        struct gguf *g = parse(b->b, b->n, &memory);
        const struct gguf_tensor *t = g && g->n_tensors ? g->tensor : NULL;
        if (!ok(g && (!t || (t->bytes == 16 && t->data + 16 <= memory + b->n)), "read: file %zu",
                i))
            printf("# %s\n", g ? "its data are outside" : err_text());
        gguf_close(g);
        free(memory);
    }
}

static const char *small_gguf(void)
{
    static char name[512];
    const char *srcdir = getenv("srcdir");
    snprintf(name, sizeof name, "%s/tests/small.gguf", srcdir ? srcdir : ".");
    return name;
}

/* tests/small.gguf, as tests/write_gguf.py wrote it by the package gguf. */
static void written_elsewhere(void)
{
    static const struct {
        const char *name, *type, *shape;
        int64_t bytes;
    } has[] = {
        {"plain.f32", "f32", "[3,40]", 480},    {"plain.f16", "f16", "[3,40]", 240},
        {"plain.bf16", "bf16", "[3,40]", 240},  {"norm.weight", "f32", "[5]", 20},
        {"experts", "f32", "[2,3,4]", 96},      {"blk.0.q4_k", "q4_k", "[3,512]", 864},
        {"blk.0.q5_k", "q5_k", "[2,256]", 352}, {"blk.0.q6_k", "q6_k", "[3,512]", 1260},
        {"blk.0.q8_0", "q8_0", "[5,96]", 510},  {"blk.0.q4_0", "q4_0", "[3,32]", 54},
    };
    struct gguf *g = gguf_open(small_gguf());
    char shape[128];

    if (!ok(g && g->version == 3 && g->n_tensors == (int)COUNT(has) && g->n_keys == 16,
            "a file of the package gguf: version 3, 16 keys, 10 tensors"))
        printf("# %s, %d keys\n", g ? "" : err_text(), g ? (int)g->n_keys : 0);
    for (size_t i = 0; g && i < COUNT(has); i++) {
        const struct gguf_tensor *t = gguf_find(g, has[i].name);
        if (t)
            gguf_shape_text(t, shape, sizeof shape);
        ok(t && strcmp(t->type->name, has[i].type) == 0 && strcmp(shape, has[i].shape) == 0 &&
               t->bytes == has[i].bytes,
           "%s is %s, %s", has[i].name, has[i].type, has[i].shape);
    }
    const struct gguf_tensor *norm = g ? gguf_find(g, "norm.weight") : NULL;
    const float one = 1;
    int ones = norm != NULL;
    for (int i = 0; norm && i < 5; i++)
        ones &= memcmp(norm->data + 4 * i, &one, 4) == 0;
    ok(ones, "norm.weight is all 1");
    ok(g && !gguf_find(g, "blk.9.q4_k") &&
           strstr(err_text(), ": no tensor blk.9.q4_k; like it: "
                              "blk.0.q4_k"),
       "a tensor that is not there: one like it");
    ok(g && !gguf_find(g, "blk.99.attn_q") && !strstr(err_text(), "like it"), "or none");
    gguf_close(g);
    ok(!gguf_open("/nonexistent.gguf") &&
           strcmp(err_text(), "/nonexistent.gguf: No such file or directory") == 0,
       "no file");
    ok(!gguf_open("/") && strcmp(err_text(), "/: Is a directory") == 0, "a folder");
}

/* ---- mutated files ---- */

/* Where something is changed: mostly in the head, which is a small part of the file. */
static size_t place(const struct bytes *b, struct chance *r)
{
    return any(r, any(r, 8) && b->n > 1500 ? 1500 : b->n);
}

static void change_byte(struct bytes *b, struct chance *r)
{
    if (b->n)
        b->b[place(b, r)] = (unsigned char)any(r, 256);
}

static void change_number(struct bytes *b, struct chance *r)
{
    static const uint64_t extreme[] = {0,
                                       1,
                                       2,
                                       5,
                                       13,
                                       255,
                                       4096,
                                       UINT32_MAX,
                                       INT64_MAX,
                                       UINT64_MAX,
                                       (uint64_t)1 << 32,
                                       (uint64_t)1 << 62,
                                       UINT64_MAX - 31};
    const uint64_t x = any(r, 3) ? extreme[any(r, COUNT(extreme))] : any(r, 100);
    const size_t bytes = any(r, 2) ? 8 : 4;

    if (b->n < bytes)
        return;
    size_t at = place(b, r);
    at = at > b->n - bytes ? b->n - bytes : at;
    for (size_t i = 0; i < bytes; i++)
        b->b[at + i] = (unsigned char)(x >> 8 * i);
}

static void cut(struct bytes *b, struct chance *r)
{
    b->n = any(r, 2) ? place(b, r) : any(r, b->n + 1);
}

static void erase(struct bytes *b, struct chance *r)
{
    const size_t at = place(b, r), most = b->n - at, n = 1 + any(r, any(r, 2) ? 16 : 200);
    const size_t gone = n < most ? n : most;

    memmove(b->b + at, b->b + at + gone, b->n - at - gone);
    b->n -= gone;
}

/* Bytes of another place are put in. */
static void copy(struct bytes *b, struct chance *r)
{
    unsigned char some[200];
    const size_t from = place(b, r), to = place(b, r), n = 1 + any(r, sizeof some);

    if (from + n > b->n || b->n + n > MOST)
        return;
    memcpy(some, b->b + from, n);
    memmove(b->b + to + n, b->b + to, b->n - to);
    memcpy(b->b + to, some, n);
    b->n += n;
}

static void mutate(struct bytes *b, struct chance *r)
{
    static void (*const how[])(struct bytes *, struct chance *) = {
        change_byte, change_byte, change_number, change_number, change_number, cut, erase, copy};

    for (size_t k = any(r, 5); k; k--)
        how[any(r, COUNT(how))](b, r);
}

static int is_sentence(const char *text)
{
    if (strncmp(text, "m.gguf: ", 8) != 0 || !text[8])
        return 0;
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            return 0;
    return 1;
}

/* Is all that it says of itself true?  Reads every byte of its tensors. */
static int is_whole(const struct gguf *g, const unsigned char *b, size_t n)
{
    unsigned sum = 0;

    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        uint64_t elements = 1;
        if (gguf_check(t)) {
            if ((t->data && !t->is_cut) || !is_sentence(err_text()))
                return 0;
            continue;
        }
        for (uint32_t k = 0; k < t->rank; k++)
            elements *= t->dim[k];
        if (t->data < b || t->bytes < 1 || t->bytes > b + n - t->data ||
            elements / (uint64_t)t->type->block * (uint64_t)t->type->bytes != (uint64_t)t->bytes ||
            !gguf_find(g, t->name))
            return 0;
        for (int64_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
    }
    return sum < UINT32_MAX;
}

static const char *some_text(struct chance *r)
{
    static char text[2048];

    if (any(r, 2))
        return refusals[any(r, COUNT(refusals))].text;
    snprintf(text, sizeof text,
             HEAD(2, 2) "%s"
                        "s:split.count u32:2 u16:3 " TENSOR "%s" FULL,
             "s:split.no u32:2 u16:0 ", odd[any(r, COUNT(odd))].tensor);
    return text;
}

static void mutated(long count, long first)
{
    static struct bytes whole, b;
    FILE *in = fopen(small_gguf(), "rb");
    long accepted = 0, others = 0, bad = 0;
    unsigned char *memory;

    whole.n = in ? fread(whole.b, 1, MOST, in) : 0;
    if (in)
        fclose(in);
    for (long i = first; i < first + count; i++) {
        struct chance r = {draw_key((uint64_t)i, "gguf"), 0};
        b = any(&r, 4) ? whole : *bytes_of(some_text(&r));
        mutate(&b, &r);
        struct gguf *g = parse(b.b, b.n, &memory);
        const int good = g ? is_whole(g, memory, b.n) : is_sentence(err_text());
        if (!good && bad++ < 10)
            printf("# case %ld: %s\n", i, g ? "its tensors are outside" : err_text());
        accepted += g != NULL;
        others += g == NULL;
        gguf_close(g);
        free(memory);
    }
    ok(!bad, "%ld mutated files: each is read, or refused with a sentence", count);
    ok(count < 1000 || (accepted > count / 20 && others > count / 20), "%ld are read, %ld refused",
       accepted, others);
}

int main(int argc, char **argv)
{
    const long count = argc > 1 ? atol(argv[1]) : 20000, first = argc > 2 ? atol(argv[2]) : 0;

    written_elsewhere();
    small_files();
    refused();
    beside();
    printable_names();
    mutated(count, first);
    return done();
}
