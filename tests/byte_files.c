/* Tensors of bytes in the library's functions, and in files: set, judged, stored and read. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "common/ablate.h"
#include "common/base/h5.h"
#include "tests/bytes.h"

enum { ALL = 15, STATES = 3 };
static char file[] = "bytes.XXXXXX";

static int said(const char *what)
{
    const int same = strstr(abl_error(), what) != NULL;
    if (!same)
        printf("# not \"%s\": %s\n", what, abl_error());
    return same;
}

static void in_library(void)
{
    struct abl_tensor t;
    unsigned char w[ALL], again[ALL], states[STATES] = {1, 255, 3};
    double x[ALL];
    abl_case *c = abl_case_new("bytes");
    abl_call *call = abl_call_new("bytes", "ref32", 0, NULL);

    ok(c && abl_tensor(c, W, &t) == 0 && t.bytes && !t.whole && !t.state && t.count == ALL &&
           abl_tensor(c, X, &t) == 0 && !t.bytes,
       "a tensor of bytes is described");
    ok(call && abl_call_tensor(call, W, &t) == 0 && t.dtype == ABL_UINT8, "its type is uint8");
    ok(abl_get_bytes(c, "W", w, ALL) == 0, "it is there");
    w[3] ^= 0xff;
    ok(abl_set_bytes(c, "W", w, ALL) == 0 && abl_get_bytes(c, "W", again, ALL) == 0 &&
           memcmp(w, again, ALL) == 0,
       "it is set, and is the same");
    ok(abl_set(c, "W", x, ALL) == -1 && said("of bytes, not of doubles") &&
           abl_get(c, "W", x, ALL) == -1 && said("of bytes, not of doubles"),
       "not by doubles");
    ok(abl_get_bytes(c, "x", w, ALL) == -1 && said("not of bytes"), "nor doubles by bytes");
    ok(abl_set_bytes(c, "W", w, ALL - 1) == -1 && said("15 elements, not 14"), "nor a part");
    ok(abl_set_bytes(c, "c0", states, STATES) == -1 && said("c0 has 255 at 1") &&
           abl_get_bytes(c, "c0", states, STATES) == 0 && states[1] != 255,
       "nor values that the contract refuses");

    abl_result *r = abl_run(c, "ref32", NULL, 0), *mine = abl_result_new(c, "mine");
    ok(r && abl_result_get_bytes(r, "V", w, ALL) == 0 &&
           abl_expected_bytes(c, "V", again, ALL) == 0 && memcmp(w, again, ALL) == 0,
       "a result is the oracle's");
    w[7] ^= 4;
    ok(mine && abl_result_get_bytes(mine, "V", w, ALL) == -1 && said("was not set") &&
           abl_result_set(mine, "V", x, ALL) == -1 && said("not of doubles") &&
           abl_result_set_bytes(mine, "V", w, ALL) == 0,
       "another program's is set");
    abl_verdicts *v = abl_judge_result(c, mine);
    struct abl_verdict one;
    ok(v && abl_count(v) == 1 && abl_verdict(v, 0, &one) == 0 && !one.pass &&
           strcmp(one.worst, "[1,2]") == 0,
       "and judged");
    abl_verdicts_free(v);
    v = abl_judge(c, "ref32", NULL, ABL_PARITY | ABL_PROPERTIES | ABL_DIFFERENCES);
    ok(v && abl_count(v) > 20 && abl_failed(v) == 0, "the backend is right");
    abl_verdicts_free(v);

    const abl_result *both[] = {r, mine};
    ok(abl_write(file, c, both, 2, NULL) == 0, "a dump is written");
    abl_result_free(r);
    abl_result_free(mine);
    abl_case_free(c);
    abl_call_free(call);
}

/* Is the dataset uint8? */
static int is_uint8(hid_t at, const char *name)
{
    hid_t d = H5Dopen2(at, name, H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    const int is = type >= 0 && h5_is_bytes(type);

    h5_drop(type);
    h5_drop(d);
    return is;
}

static void read_back(void)
{
    static const char *const datasets[] = {"/trial/0001/in/W", "/trial/0001/in/c0",
                                           "/trial/0001/ref32/V", "/trial/0001/mine/V"};
    unsigned char one[ALL], other[ALL];
    double x[ALL];
    int same = 1;
    hid_t h = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
    abl_case *c = abl_case_read(file, "/trial/0001"), *drawn = abl_case_new("bytes");
    abl_result *r = abl_result_new(c, "mine");
    abl_dump *d = abl_dump_open(file);

    for (size_t i = 0; i < COUNT(datasets); i++)
        same &= is_uint8(h, datasets[i]);
    ok(same, "inputs and results of bytes are uint8 there");
    H5Fclose(h);
    same = abl_get_bytes(c, "W", one, ALL) == 0 && abl_get_bytes(drawn, "W", other, ALL) == 0;
    other[3] ^= 0xff;
    ok(same && memcmp(one, other, ALL) == 0, "an input reads back");
    ok(abl_result_read(r, file, "/trial/0001/mine") == 0 &&
           abl_result_get_bytes(r, "V", one, ALL) == 0 &&
           abl_expected_bytes(c, "V", other, ALL) == 0 && one[7] == (other[7] ^ 4),
       "and so does a result");
    ok(d && abl_dump_read(d, "/trial/0001/mine/V", x, ALL) == 0 && x[7] == one[7],
       "as numbers, too");
    abl_dump_free(d);
    abl_result_free(r);
    abl_case_free(drawn);
    abl_case_free(c);
}

/* A dataset of that type, with the values of these bytes. */
static void put_in(hid_t h, const char *name, hid_t type, const unsigned char *values, int rank)
{
    const hsize_t dim[] = {STATES, ALL / STATES};
    hid_t space = H5Screate_simple(rank, dim, NULL);
    hid_t d = H5Dcreate2(h, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    H5Dwrite(d, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    h5_drop(d);
    h5_drop(space);
}

/* The file has it alone. */
static void put(const char *name, hid_t type, const unsigned char *values, int rank)
{
    hid_t h = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    put_in(h, name, type, values, rank);
    H5Fclose(h);
}

static void as_input(void)
{
    unsigned char w[ALL], got[ALL] = {0}, states[STATES] = {1, 2, 255};
    const struct {
        const char *says;
        hid_t type;
    } others[] = {{"int8", H5T_STD_I8LE},
                  {"uint16", H5T_STD_U16BE},
                  {"int64", H5T_STD_I64LE},
                  {"float64", H5T_IEEE_F64LE}};
    char words[200], text[100];

    for (int i = 0; i < ALL; i++)
        w[i] = (unsigned char)(i * 17);
    snprintf(words, sizeof words, "bytes input=hdf5 file=%s", file);
    put("W", H5T_STD_U8LE, w, 2);
    abl_case *c = abl_case_new(words);
    ok(c && abl_get_bytes(c, "W", got, ALL) == 0 && memcmp(w, got, ALL) == 0,
       "a dataset of uint8 is an input: %s", c ? "" : abl_error());
    abl_case_free(c);
    for (size_t i = 0; i < COUNT(others); i++) {
        put("W", others[i].type, w, 2);
        snprintf(text, sizeof text, "/W is %s, bytes's W takes bytes: uint8", others[i].says);
        ok(!abl_case_new(words) && said(text), "%s is refused", others[i].says);
    }
    put("W", H5T_STD_U8LE, w, 1);
    ok(!abl_case_new(words) && said("is [3], bytes's W is [3,5]"), "another shape is refused");
    put("c0", H5T_STD_U8LE, states, 1);
    ok(!abl_case_new(words) && said("/c0 has 255 at 2"), "so are values that the contract refuses");
    put("x", H5T_STD_U8LE, w, 2);
    ok(!abl_case_new(words) && said("/x is uint8, bytes's x takes floating point numbers"),
       "and bytes for a real input");
}

/* A group of inputs, as a dump has it. */
static void as_group(void)
{
    const unsigned char w[ALL] = {0}, states[STATES] = {1, 2, 255};
    unsigned char was[ALL], is[ALL];
    abl_case *c = abl_case_new("bytes");
    int same = abl_get_bytes(c, "W", was, ALL) == 0;

    hid_t h = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    h5_drop(H5Gcreate2(h, "wrong", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "refused", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "wrong/in", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "refused/in", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    put_in(h, "wrong/in/W", H5T_STD_I16LE, w, 2);
    put_in(h, "refused/in/c0", H5T_STD_U8LE, states, 1);
    H5Fclose(h);
    ok(abl_read(c, file, "wrong") == -1 && said("W is not of bytes: uint8"),
       "abl_read refuses other types");
    ok(abl_read(c, file, "refused") == -1 && said("c0 has 255 at 2"), "and values");
    same = same && abl_get_bytes(c, "W", is, ALL) == 0 && memcmp(was, is, ALL) == 0;
    ok(same, "then an input stays as it was");
    abl_case_free(c);
}

int main(void)
{
    const int fd = mkstemp(file);

    close(fd);
    unlink(file);
    in_library();
    read_back();
    as_input();
    as_group();
    unlink(file);
    return done();
}
