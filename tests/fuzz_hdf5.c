/* Changed HDF5 files: valid dumps, of which attributes and datasets are changed to others that
 * HDF5 allows, and dumps with changed bytes.  Every reader must end, without a crash, in success
 * or in an error with a message.
 *
 *     fuzz_hdf5 [COUNT [FIRST]]     files FIRST, FIRST + 1 ...; each is the same in every run
 *
 * A file with changed bytes may crash libhdf5 itself, and one in which a text
 * is said to be gigabytes long takes it minutes: these are counted separately, by
 * the library in which the innermost frame lies.  If libhdf5 writes outside of its memory, malloc()
 * may abort later, in a call of ours: such a file is counted with them, too.  A write of ours would
 * be named where the suite runs with AddressSanitizer. */
#include "config.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <dlfcn.h>
#include <execinfo.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include <hdf5.h>

#include "common/ablate.h"
#include "common/base/err.h"
#include "common/page/page.h"
#include "common/report/baseline.h"
#include "common/report/unused.h"
#include "common/run/input.h"
#include "common/run/trial.h"
#include "common/store/header.h"
#include "common/store/store.h"
#include "tests/here.h"
#include "tests/tap.h"

enum { DEFAULT_COUNT = 200, SECONDS = 10, PATIENCE = 120 };

/* ---- the random choices of file i ---- */

static uint64_t key;
static int64_t drawn;

static void begin_file(int i)
{
    key = draw_key(20261123, "fuzz_hdf5");
    drawn = (int64_t)i << 20;
}

/* From 0 to n - 1. */
static int64_t any(int64_t n)
{
    return (int64_t)(draw_uniform(key, drawn++) * (double)n);
}

/* ---- seeds: a finished dump, and a part with one of two trials ---- */

static const char WORDS[] = "linear rows=3,4 dim_in=4 dim_out=5 checks=parity repeats=2";
static const char FINISHED[] = "finished.h5", UNFINISHED[] = "unfinished.h5";
static struct experiment plan;
static struct result results[2];

static int write_seed(const char *name, int n)
{
    snprintf(plan.output, sizeof plan.output, "%s", name);
    struct store *s = store_open(&plan, 0);
    int e = !s;
    for (int i = 0; !e && i < n; i++)
        e = store_write(s, i, &results[i]);
    return e || store_close(s, n == plan.n);
}

static int make_seeds(void)
{
    static const volatile int go_on = 0;
    char part[64];

    snprintf(part, sizeof part, "%s.part", UNFINISHED);
    if (plan_words(WORDS, &plan, stdout))
        return -1;
    plan.contexts = here();
    for (int i = 0; i < plan.n; i++)
        if (trial_run(&plan, &plan.trial[i], &go_on, no_step, NULL, &results[i]))
            return -1;
    return write_seed(FINISHED, 2) || write_seed(UNFINISHED, 1) || rename(part, UNFINISHED);
}

/* ---- the places that can be changed ---- */

enum { MAX_PLACES = 512 };
struct targets {
    char path[MAX_PLACES][96];
    H5O_type_t type[MAX_PLACES];
    int n;
};

static herr_t note(hid_t at, const char *name, const H5O_info_t *info, void *data)
{
    struct targets *p = data;
    (void)at;
    if (p->n < MAX_PLACES) {
        snprintf(p->path[p->n], sizeof p->path[0], "%s", name);
        p->type[p->n++] = info->type;
    }
    return 0;
}

/* ---- types, extents, values ---- */

static hid_t text_type(int64_t size, int utf8)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    H5Tset_size(t, size ? (size_t)size : H5T_VARIABLE);
    H5Tset_cset(t, utf8 ? H5T_CSET_UTF8 : H5T_CSET_ASCII);
    return t;
}

/* A table like `time`, with fewer members, and of other types. */
static hid_t table_type(void)
{
    static const char *const member[] = {"backend", "kernel", "pass", "median",
                                         "spread",  "method", "runs", "more"};
    hid_t t = H5Tcreate(H5T_COMPOUND, 128), text = text_type(any(2) ? 0 : 16, 1);

    for (int i = 0; i < 8; i++) {
        int text_here = i < 3 || i == 5;
        hid_t number = i == 6 ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
        int odd = any(12);
        if (odd == 0)
            continue;
        H5Tinsert(t, member[i], (size_t)i * 16,
                  odd == 1    ? H5T_NATIVE_INT8
                  : text_here ? text
                              : number);
    }
    H5Tclose(text);
    return t;
}

static hid_t any_type(void)
{
    const hsize_t three = 3;
    hid_t t;
    switch (any(14)) {
    case 0: return H5Tcopy(H5T_STD_I8LE);
    case 1: return H5Tcopy(H5T_STD_U64BE);
    case 2: return H5Tcopy(H5T_STD_I64LE);
    case 3: return H5Tcopy(H5T_IEEE_F64BE);
    case 4: return H5Tcopy(H5T_IEEE_F32LE);
    case 5: return text_type(0, any(2));
    case 6: return text_type(1 + any(70), any(2));
    case 7: return text_type(1 + any(5000), any(2));
    case 8: return table_type();
    case 9: return H5Tvlen_create(H5T_NATIVE_INT);
    case 10: return H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &three);
    case 11: return H5Tcreate(H5T_OPAQUE, 1 + any(40));
    case 12: return H5Tcopy(H5T_STD_REF_OBJ);
    default:
        t = H5Tcopy(H5T_STD_I64LE);
        H5Tset_precision(t, 1 + any(64));
        return t;
    }
}

static hid_t any_space(int may_be_huge, int *huge)
{
    hsize_t dim[4], n = 1;
    int rank = 1 + (int)any(4);

    *huge = 0;
    if (any(4) == 0)
        return H5Screate(any(3) ? H5S_SCALAR : H5S_NULL);
    for (int i = 0; i < rank; i++) {
        dim[i] = (hsize_t)(any(5) ? any(6) : any(300));
        n *= dim[i];
    }
    if (n > 4000)
        rank = 1;
    if (may_be_huge && any(3) == 0) {
        dim[any(rank)] = (hsize_t)1 << (20 + any(40));
        *huge = 1;
    }
    return H5Screate_simple(rank, dim, NULL);
}

/* Values for n elements of that type: texts of variable length need pointers. */
static void *any_values(hid_t type, int64_t n)
{
    static char text[] = "e74 rows=99 input=";
    size_t size = H5Tget_size(type);
    unsigned char *value = calloc(n + 1, size);
    int pointers = H5Tis_variable_str(type) > 0, kind = (int)any(3);

    if (H5Tdetect_class(type, H5T_VLEN) > 0 || H5Tget_class(type) == H5T_REFERENCE ||
        (!pointers && H5Tdetect_class(type, H5T_STRING) > 0 && H5Tget_class(type) != H5T_STRING))
        return value; /* empty ones */
    for (int64_t i = 0; value && pointers && i < n; i++)
        ((char **)value)[i] = kind ? text : NULL;
    for (int64_t i = 0; value && !pointers && i < n * (int64_t)size; i++)
        value[i] = (unsigned char)(kind == 0 ? any(256) : kind == 1 ? 255 : 'a');
    return value;
}

/* ---- changes that HDF5 allows ---- */

static void write_attribute(hid_t at, const char *name)
{
    int huge;
    hid_t type = any_type(), space = any_space(0, &huge);
    hid_t a = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    void *value = any_values(type, H5Sget_simple_extent_npoints(space));

    if (a >= 0 && any(8))
        H5Awrite(a, type, value);
    free(value);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

static void change_attribute(hid_t file, const struct targets *p)
{
    static const char *const ours[] = {"n_trials", "schema",  "device", "line",    "complete",
                                       "n_checks", "skipped", "name",   "unjudged"};
    char name[64];
    hid_t at = H5Oopen(file, p->path[any(3) ? any(p->n < 12 ? p->n : 12) : any(p->n)], H5P_DEFAULT);
    H5O_info_t info;

    if (H5Oget_info2(at, &info, H5O_INFO_NUM_ATTRS) < 0 || !info.num_attrs)
        return;
    hsize_t i = (hsize_t)any((int64_t)info.num_attrs);
    if (H5Aget_name_by_idx(at, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) <
        0)
        return;
    if (any(2) && H5Aexists(at, ours[i % 8]) > 0)
        snprintf(name, sizeof name, "%s", ours[i % 8]);
    switch (any(8)) {
    case 0: H5Adelete(at, name); break;
    case 1: H5Arename(at, name, "renamed"); break;
    default: H5Adelete(at, name); write_attribute(at, name);
    }
    H5Oclose(at);
}

/* Sets chunks where the dataset must or may have them; has it any? */
static int any_chunks(hid_t how, int rank, int huge)
{
    const hsize_t chunk[4] = {2, 2, 2, 2};
    if (rank <= 0 || (!huge && any(3)))
        return 0;
    H5Pset_chunk(how, rank, chunk);
    if (any(2))
        H5Pset_deflate(how, 1);
    if (any(4) == 0)
        H5Pset_filter(how, 32000, H5Z_FLAG_OPTIONAL, 0, NULL); /* lzf, which is not installed */
    return 1;
}

/* A dataset of that name, or a group. */
static void make_other(hid_t file, const char *path)
{
    const hsize_t at[4] = {0, 0, 0, 0};
    int huge;

    if (any(6) == 0) {
        H5Gcreate2(file, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        return;
    }
    hid_t type = strstr(path, "time") && any(3) ? table_type() : any_type();
    hid_t space = any_space(1, &huge), how = H5Pcreate(H5P_DATASET_CREATE);
    int chunks = any_chunks(how, H5Sget_simple_extent_ndims(space), huge);
    hid_t d = H5Dcreate2(file, path, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    int64_t n = H5Sget_simple_extent_npoints(space);

    if (d >= 0 && chunks && !huge && n > 0 && any(2)) { /* which no filter made */
        H5Dwrite_chunk(d, H5P_DEFAULT, 0, at, 7, "garbage");
    } else if (d >= 0 && !huge && any(4)) {
        void *value = any_values(type, n);
        H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
        free(value);
    }
    H5Dclose(d);
    H5Pclose(how);
    H5Sclose(space);
    H5Tclose(type);
}

static void change_object(hid_t file, const struct targets *p)
{
    static const char *const known[] = {"trial/0001/time",      "trial/0001/in/x",
                                        "trial/0001/ref64/out", "trial/0001/ref64/d/x",
                                        "trial/0001/dout/out",  "trial/0001"};
    char path[96];

    snprintf(path, sizeof path, "%s", any(2) ? known[any(6)] : p->path[any(p->n)]);
    if (strcmp(path, ".") == 0)
        return;
    const char *other = p->path[any(p->n)];
    H5Ldelete(file, path, H5P_DEFAULT);
    switch (any(9)) {
    case 0: break;
    case 1: H5Lcreate_soft("/nowhere", file, path, H5P_DEFAULT, H5P_DEFAULT); break;
    case 2: H5Lcreate_soft(path, file, path, H5P_DEFAULT, H5P_DEFAULT); break;
    case 3: H5Lcreate_external(FINISHED, other, file, path, H5P_DEFAULT, H5P_DEFAULT); break;
    case 4: H5Lcreate_hard(file, other, file, path, H5P_DEFAULT, H5P_DEFAULT); break;
    default: make_other(file, path);
    }
}

static void change_objects(const char *name)
{
    struct targets *p = calloc(1, sizeof *p);
    hid_t how = H5Pcreate(H5P_FILE_ACCESS), file;

    if (any(2)) /* attributes, and links, as later versions write them */
        H5Pset_libver_bounds(how, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
    file = H5Fopen(name, H5F_ACC_RDWR, how);
    H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, note, p, H5O_INFO_BASIC);
    for (int64_t n = 1 + any(3); n > 0; n--)
        if (any(2))
            change_attribute(file, p);
        else
            change_object(file, p);
    H5Fclose(file);
    free(p);
}

/* ---- changed bytes ---- */

static void change_bytes(const char *name)
{
    struct stat st;
    FILE *f = fopen(name, "r+b");

    if (!f || stat(name, &st))
        _exit(1);
    for (int64_t n = 1 + any(8); n > 0; n--) {
        int64_t length = any(3) ? 1 : 1 + any(32), kind = any(3);
        fseek(f, any(st.st_size), SEEK_SET);
        for (; length > 0; length--)
            fputc(kind == 0 ? 0 : kind == 1 ? 255 : (int)any(256), f);
    }
    fclose(f);
    if (any(10) == 0 && truncate(name, any(st.st_size)))
        _exit(1);
}

/* ---- all readers ---- */

static const char MUTATED[] = "mutated.h5", PART[] = "mutated.h5.part";

/* A function that failed must have set a message. */
static void says_why(int failed, const char *what)
{
    if (failed && !*err_text()) {
        printf("# %s failed and did not say why\n", what);
        fflush(stdout);
        _exit(2);
    }
    err_set("%s", "");
}

static void read_library(void)
{
    abl_case *c = abl_case_new(plan.trial[0].text), *again;
    abl_result *r = abl_result_new(c, "mine");

    again = abl_case_read(MUTATED, "/trial/0001");
    says_why(!again, "abl_case_read");
    abl_case_free(again);
    again = abl_case_read(MUTATED, "/trial/0002");
    says_why(!again, "abl_case_read");
    abl_case_free(again);
    says_why(abl_read(c, MUTATED, "/trial/0001"), "abl_read");
    says_why(abl_result_read(r, MUTATED, "/trial/0001/ref64"), "abl_result_read");
    abl_result_free(r);
    abl_case_free(c);
}

static void read_times(void)
{
    char device[2048];
    header_device(&plan, device, sizeof device);
    struct dump_times *d = dump_times_read(MUTATED);
    struct baseline *b = baseline_open(MUTATED, .05, device);
    struct comparison *list = NULL;

    says_why(!b, "baseline_open");
    for (int i = 0; b && d && i < d->n; i++) {
        says_why(baseline_compare(b, &d->trial[i], &list) < 0, "baseline_compare");
        free(list);
    }
    baseline_free(b);
    dump_times_free(d);
}

static void read_page(void)
{
    struct page_dump *d = page_dump_read(MUTATED);
    FILE *to = d ? fopen("/dev/null", "w") : NULL;

    says_why(!d, "page_dump_read");
    if (to) {
        says_why(page_write(to, d), "page_write");
        fclose(to);
    }
    page_dump_free(d);
}

static void read_input(void)
{
    struct trial t = plan.trial[0];
    struct tensors *x = tensors_new(&t.call);

    t.input = INPUT_HDF5;
    snprintf(t.file, sizeof t.file, "%s", MUTATED);
    snprintf(t.group, sizeof t.group, "/trial/0001/in");
    says_why(input_fill(&t, x, NULL), "input_fill");
    tensors_free(x);

    /* Of another operation: the dump has datasets that are none of its inputs. */
    struct experiment reading = {.n = 1, .trial = &t};
    char text[2048];
    t.call.op = op_find("swiglu");
    op_defaults(t.call.op, &t.call);
    unused_datasets(&reading, 0, text, sizeof text);
}

/* Resume the file as the finished one, then as the part, of the same plan: the missing trial
 * is written. */
static void go_on(int how)
{
    struct store *s = store_open(&plan, how);
    struct store_counts counts;
    int e = 0;

    says_why(!s, "store_open");
    for (int i = 0; s && !e && i < plan.n; i++) {
        struct timings t = {.n = 0};
        if (store_has(s, i, &counts))
            says_why(store_timings(s, i, &t), "store_timings");
        else
            says_why(e = store_write(s, i, &results[i]), "store_write");
        free(t.timing);
    }
    if (s) {
        char *device = store_device(s);
        says_why(!device, "store_device");
        free(device);
        says_why(store_close(s, !e), "store_close");
    }
}

static void read_all(void)
{
    snprintf(plan.output, sizeof plan.output, "%s", MUTATED);
    read_library();
    read_times();
    read_page();
    read_input();
    says_why(store_may_write(&plan, 0), "store_may_write");
    go_on(STORE_RESUME);
    if (link(MUTATED, PART))
        return;
    unlink(MUTATED);
    go_on(0);
    if (access(PART, F_OK) == 0)
        go_on(STORE_RESUME);
}

/* ---- children ---- */

/* The library in which a child crashed, or was at the end of its time. */
enum where { NOWHERE, OURS, HDF5S };
static volatile enum where *crashed;

/* Whose code is at that address?  NOWHERE: no library's, the C library's, or a sanitizer's. */
static enum where whose(const void *address)
{
#ifdef __GLIBC__
    static const char *const others[] = {"libc.", "libc-", "libasan", "libubsan", "libm.", "vdso"};
    Dl_info at;
    int other = !dladdr(address, &at) || !at.dli_fname;

    for (size_t k = 0; !other && k < COUNT(others); k++)
        other = strstr(at.dli_fname, others[k]) != NULL;
    return other ? NOWHERE : strstr(at.dli_fname, "libhdf5") ? HDF5S : OURS;
#else
    (void)address;
    return OURS;
#endif
}

/* The innermost frame that is somebody's, but not this function's own. */
static enum where innermost(void)
{
    enum where found = NOWHERE;
#ifdef __GLIBC__
    void *frame[64];
    const int n = backtrace(frame, 64);

    for (int i = 3; i < n && found == NOWHERE; i++)
        found = whose(frame[i]);
#endif
    return found == NOWHERE ? OURS : found;
}

/* Of a call of what is no function, as NULL, from which no frames can be followed: who made it.  NOWHERE: it was none. */
static enum where caller(const ucontext_t *at)
{
#if defined __GLIBC__ && defined __x86_64__
    const greg_t *r = at->uc_mcontext.gregs;
    Dl_info ignored;

    if (!dladdr((void *)r[REG_RIP], &ignored))
        return whose(*(void *const *)r[REG_RSP]);
#endif
    (void)at;
    return NOWHERE;
}

static void on_crash(int number, siginfo_t *info, void *at)
{
    const enum where by = number == SIGSEGV ? caller(at) : NOWHERE;

    (void)info;
    *crashed = by == NOWHERE ? innermost() : by;
    signal(number, SIG_DFL);
    raise(number);
}

/* AddressSanitizer calls it before it reports. */
__attribute__((visibility("default"))) void __asan_on_error(void);
void __asan_on_error(void)
{
    *crashed = innermost();
}

static void catch_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF, SIGALRM};
    const struct sigaction how = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};
    const struct itimerval busy = {.it_value = {.tv_sec = SECONDS}};
    for (size_t i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &how, NULL);
    /* Processor time, since other work may keep it from going on; or else it waits for something. */
    setitimer(ITIMER_PROF, &busy, NULL);
    alarm(PATIENCE);
}

/* Call `what` in a child; its exit status, or -1. */
static int in_child(void (*what)(void))
{
    int status = -1;
    fflush(stdout);
    *crashed = NOWHERE;
    pid_t child = fork();
    if (child == 0) {
        catch_crashes();
        what();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

/* ---- files ---- */

static int changes_bytes;

static void change(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (changes_bytes)
        change_bytes(MUTATED);
    else
        change_objects(MUTATED);
}

static int copy(const char *from, const char *to)
{
    char buffer[4096];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    while (in && out && (n = fread(buffer, 1, sizeof buffer, in)) > 0)
        fwrite(buffer, 1, n, out);
    return !in || fclose(in) || !out || fclose(out) ? -1 : 0;
}

struct counts {
    int files, inside, bad;
};

static void try_file(int i, struct counts *c)
{
    begin_file(i);
    changes_bytes = any(10) < 3;
    unlink(PART);
    unlink(MUTATED);
    if (copy(any(3) ? FINISHED : UNFINISHED, MUTATED) || in_child(change)) {
        printf("# file %d could not be made; again: tests/fuzz_hdf5 1 %d\n", i, i);
        c[changes_bytes].bad++;
        return;
    }
    int status = in_child(read_all), by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int busy = by == SIGALRM || by == SIGPROF;
    int damaged = changes_bytes && by == SIGABRT; /* nothing of ours calls abort() */
    c[changes_bytes].files++;
    if (!status)
        return;
    if (damaged || ((changes_bytes || busy) && *crashed == HDF5S)) {
        c[changes_bytes].inside++;
        printf("# file %d: %s inside libhdf5\n", i, busy ? "was not read in time," : "crashed");
        return;
    }
    c[changes_bytes].bad++;
    printf("# file %d: status %#x; again: tests/fuzz_hdf5 1 %d\n", i, status, i);
}

static void leave(const char *folder)
{
    static const char *const files[] = {"finished.h5", "unfinished.h5", "mutated.h5",
                                        "mutated.h5.part"};
    for (size_t i = 0; i < COUNT(files); i++)
        unlink(files[i]);
    if (chdir("/") || rmdir(folder))
        printf("# %s is left behind\n", folder);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : DEFAULT_COUNT, first = argc > 2 ? atoi(argv[2]) : 0;
    const char *tmp = getenv("TMPDIR");
    struct counts c[2] = {{0, 0, 0}, {0, 0, 0}};
    char folder[256];

#ifdef _OPENMP
    omp_set_num_threads(1); /* a child has only the thread that forked */
#endif
    snprintf(folder, sizeof folder, "%s/ablate-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    crashed =
        mmap(NULL, sizeof *crashed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crashed == MAP_FAILED || !mkdtemp(folder) || chdir(folder) || make_seeds()) {
        printf("Bail out! no files to begin with: %s\n", err_text());
        return EXIT_FAILURE;
    }
    for (int i = first; i < first + n; i++)
        try_file(i, c);
    for (int bytes = 0; bytes < 2; bytes++) {
        const char *what = bytes ? "other bytes" : "other attributes or datasets";
        ok(!c[bytes].bad, "%d files with %s are read, or refused with a reason",
           c[bytes].files - c[bytes].inside, what);
        if (c[bytes].inside)
            skip("they keep libhdf5 itself busy, or crash it", "%d files with %s", c[bytes].inside,
                 what);
    }
    leave(folder);
    return done();
}
