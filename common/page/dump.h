/* dump.h - what a page shows of a dump, in memory: attributes, verdicts and times, of this
 * schema and of the one before.
 *
 * The file may come from anybody.  Tables that are not as they should be are an error;
 * attributes that are not there are empty.  No text is NULL, but every text may hold anything:
 * html_text() writes it. */
#ifndef PAGE_DUMP_H
#define PAGE_DUMP_H

#include <hdf5.h>

#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/page/run.h"
#include "common/store/check_rows.h"
#include "common/store/read_ablation.h"
#include "common/store/time_rows.h"

/* A word of a trial's line, "steps=128". */
struct setting {
    const char *key, *value;
};
enum { MAX_WORDS = 64 };

struct page_trial {
    int number;         /* from 1 */
    char *line, *words; /* as it pastes back; and cut into settings */
    const char *op;
    struct setting setting[MAX_WORDS];
    int n_settings;
    char *section, *skips, *declined, *warning;
    int64_t checks, failed, unjudged, missed, skipped;
    int complete;
    char *would_pass; /* a line each; "": nothing, or it was not asked */
    char *yardstick;  /* "ref32 plain"; "": not known */
    double yardstick_error;
    struct check_row *check;
    struct time_row *time;
    int n_checks, n_times;
    struct page_run *run; /* of training, or NULL */
    int look;             /* of its variant (plot.h), where there is an ablation */
};

/* The trials of one operation, by their places in the list; the keys that differ between them, and
 * those that do not. */
struct page_group {
    const char *op;
    int *trial, n;
    const char *varying[MAX_WORDS], *constant[MAX_WORDS];
    int n_varying, n_constant;
};

/* The attributes of the root that are shown, in this order. */
#define PAGE_FACTS(FACT)                                                                           \
    FACT(device, "Device")                                                                         \
    FACT(host, "Host")                                                                             \
    FACT(date, "Date")                                                                             \
    FACT(version, "Version of ablate")                                                             \
    FACT(compiler, "Compiler")                                                                     \
    FACT(source, "Experiment")                                                                     \
    FACT(measure, "Measure")                                                                       \
    FACT(checks, "Checks")                                                                         \
    FACT(backends, "Backends")                                                                     \
    FACT(save, "Tensors saved")
#define PAGE_FACT_ID(name, label) FACT_##name,
enum { PAGE_FACTS(PAGE_FACT_ID) N_FACTS };

struct page_dump {
    char *name, *ini, *fact[N_FACTS];
    struct ceilings ceilings;
    int has_ceilings;
    struct page_trial *trial;
    int n;
    struct page_group *group;
    int n_groups;
    struct stored_ablation *ablation; /* of two or more runs of training; or NULL */
    int *look; /* of the variant of each of its cells: 0, 1, ... in their order */
    int n_looks;
    hid_t check_type, time_type; /* of rows; their texts are HDF5's */
};

/* NULL after err_set(): it cannot be read, or is none of ours. */
struct page_dump *page_dump_read(const char *file);
void page_dump_free(struct page_dump *d);

/* The value of a trial's setting; "" where it has none. */
const char *page_setting(const struct page_trial *t, const char *key);
/* The value in the first trial of a group that has it; "" where none has. */
const char *page_group_setting(const struct page_dump *d, const struct page_group *g,
                               const char *key);

/* Is the key one of the list of n? */
int page_has_key(const char *const *list, int n, const char *key);

#endif
