/* A run that goes on with the part of another: with which plans, keys and inputs it does, and when a
 * part is thrown away. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "tests/dumps.h"

static void resuming(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0), y = x;
    struct store_counts c = {-1, -1, -1, -1, -1};

    ok(!write_some(&x, 0, 0, 2) && there(part) && !there(output) &&
           complete(part, 4, SAVE_ALL) == 2,
       "an unfinished run leaves its part");
    struct store *s = store_open(&x, 1);
    if (!ok(s != NULL, "it can be resumed")) {
        printf("# %s\n", err_text());
        return;
    }
    ok(store_has(s, 1, &c) && c.checks == 3 && c.failed == 1 && c.unjudged == 1 && c.skipped == 3 &&
           c.missed == 1 && !store_has(s, 2, &c),
       "finished trials are known, with their counts");
    ok(strcmp(store_name(s), part) == 0, "store_name");
    says(store_write(s, 1, &results[1]), "trial 2 is there already", "no trial is written twice");
    ok(!store_close(s, 0), "closed");
    s = store_open(&x, 1);
    says(!s || store_close(s, 1), "trial 3 is missing", "not finished before all are there");
    ok(there(part) && !there(output), "the part stays");

    y.n = 3;
    says(!store_open(&y, 1), ".part: holds another plan: of 4 trials, not 3", "fewer trials");
    struct trial other[4];
    memcpy(other, trials, sizeof other);
    y = x;
    y.trial = other;
    snprintf(other[3].text, sizeof other[3].text, "something else");
    says(!store_open(&y, 1), ".part: holds another plan: trial 4 is 'e74 state=", "another trial");
    y = x;
    snprintf(y.name, sizeof y.name, "loss");
    says(!store_open(&y, 1), ".part: holds another plan: 'store', not 'loss'", "another name");
    y = x;
    y.measure = MEASURE_TIME;
    says(!store_open(&y, 1), ".part: holds another plan: measure = check, not time",
         "another measure");
    ok(complete(part, 4, SAVE_ALL) == 2, "refusing leaves the part alone");

    ok(!write_some(&x, 1, 0, 4) && there(output) && !there(part) &&
           complete(output, 4, SAVE_ALL) == 4,
       "resumed to the end");
    s = store_open(&x, 1);
    ok(s && store_has(s, 3, &c) && strcmp(store_name(s), output) == 0,
       "a finished file has everything");
    says(!s || store_write(s, 3, &results[3]), "trial 4 is there already", "and takes no more");
    ok(s && !store_close(s, 1) && complete(output, 4, SAVE_ALL) == 4, "and stays");
    y.n = 2;
    says(!store_open(&y, 1), "holds another plan", "a finished file of another plan");
    clean();
}

/* A part that is there is not thrown away with finished trials in it. */
static void discarding(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0), y = x;

    ok(!write_some(&x, 0, 0, 4), "a finished file");
    ok(!write_some(&x, 0, 0, 1) && there(output) && complete(part, 4, SAVE_ALL) == 1,
       "without resuming a new part begins beside the finished file");
    says(!store_open(&x, 0), ".part: holds 1 finished trial, which would be lost",
         "but not in the place of a part with finished trials");
    y = x;
    y.repeats = 3;
    says(!store_open(&y, 0), ".part: holds 1 finished trial of another plan, which would be lost",
         "also of another plan");
    ok(complete(part, 4, SAVE_ALL) == 1, "which stays");
    ok(!write_some(&x, STORE_DISCARD, 0, 0) && complete(part, 4, SAVE_ALL) == 0,
       "unless an option says so");
    ok(!write_some(&x, 0, 0, 2) && complete(part, 4, SAVE_ALL) == 2,
       "a part without finished trials is begun again");
    ok(!truncate(part, 5000), "a part is damaged");
    says(!store_open(&x, 0) && err_advice() == ADVICE_AGAIN, ".part: cannot be read",
         "a damaged part is not thrown away");
    ok(!write_some(&x, STORE_DISCARD, 0, 1) && complete(part, 4, SAVE_ALL) == 1,
       "unless an option says so, too");
    write_text(part, "this is a text");
    says(!store_open(&x, 1), ".part: cannot be read: file signature not found", "no HDF5 file");
    says(!store_open(&x, STORE_DISCARD), ".part: was not written by this program: move it away",
         "a part that is none is not thrown away in any case");
    ok(holds_text(part, "this is a text"), "and stays as it is");
    clean();
    ok(!write_text(part, "") && !write_some(&x, 1, 0, 4), "an empty part is as good as none");
    clean();
    ok(!write_some(&x, 1, 0, 4) && complete(output, 4, SAVE_ALL) == 4, "nothing to resume: begun");
    clean();
    snprintf(y.output, sizeof y.output, "no/such/folder.h5");
    says(!store_open(&y, 0), "no/such/folder.h5.part: cannot be written: No such file or directory",
         "no such folder");
}

/* Every key on which the contents of the file depend. */
static void other_keys(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 1, 2), y = x;
    x.checks = CHECK_DIFFERENCES | CHECK_PARITY;
    x.directions = 2;
    const struct {
        struct experiment y;
        const char *says;
    } other[] = {
        {x, "checks = differences, parity, not none"},
        {x, "directions = 2, not 3"},
        {x, "repeats = 2, not 3"},
        {x, "save = all, not outputs"},
        {x, "compress = 1, not 2"},
        {x, "backends = all, not ref32"},
    };

    ok(!write_some(&x, 0, 0, 2), "a part, of some keys");
    for (size_t i = 0; i < COUNT(other); i++) {
        y = x;
        y.checks = i == 0 ? 0 : x.checks;
        y.directions += i == 1;
        y.repeats += i == 2;
        y.save = i == 3 ? SAVE_OUTPUTS : x.save;
        y.compress += i == 4;
        y.n_backends = i == 5;
        y.backend[0] = &ref32;
        says(!store_open(&y, 1), other[i].says, other[i].says);
    }
    y = x;
    y.text = "; a comment";
    ok(!write_some(&y, 1, 0, 3), "another comment is no other plan");
    clean();
}

/* Trials that read a file. */
static void inputs(void)
{
    struct experiment x = experiment(2, SAVE_ALL, 0, 0);
    struct trial reading[2];
    char input[80];

    memcpy(reading, trials, sizeof reading);
    snprintf(input, sizeof input, "%s.txt", output);
    snprintf(reading[1].file, sizeof reading[1].file, "%s", input);
    x.trial = reading;
    ok(!write_text(input, "foobar") && !write_some(&x, 0, 0, 1), "a part, of a trial with a file");
    hid_t f = H5Fopen(part, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t g = H5Gopen2(f, "/trial/0002", H5P_DEFAULT);
    ok(is_text(g, "contents", "fnv1a64 85944171f73967e8, 6 bytes"), "the file's hash is in it");
    H5Gclose(g);
    H5Fclose(f);
    write_text(input, "foobaz");
    says(!store_open(&x, 1) && err_advice() == ADVICE_AGAIN, ".part: trial 2 read another store-",
         "another content is refused");
    write_text(input, "foobar");
    ok(!write_some(&x, 1, 0, 2) && there(output), "the same content is not");
    write_text(input, "foobaz");
    says(!store_open(&x, 1), "trial 2 read another", "nor is a finished file's");

    snprintf(x.output, sizeof x.output, "./%s", input);
    says(!store_open(&x, STORE_REPLACE), "is the input of trial 2", "an output that is an input");
    snprintf(part, sizeof part, "%s.part", output);
    snprintf(reading[1].file, sizeof reading[1].file, "%s", part);
    snprintf(x.output, sizeof x.output, "%s", output);
    ok(!rename(input, part), "an input is named like the part");
    says(!store_open(&x, STORE_REPLACE), ".part: is the input of trial 2", "a part that is one");
    x.trial = trials;
    x.file = part;
    says(!store_open(&x, STORE_REPLACE), ".part: is the experiment's own ini", "or the ini");
    ok(holds_text(part, "foobaz"), "they stay as they are");
    clean();
}

int main(void)
{
    trials_new();
    resuming();
    discarding();
    other_keys();
    inputs();
    trials_free();
    return done();
}
