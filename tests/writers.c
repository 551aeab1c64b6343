/* Other programs at the same files: neighbours' files, changes while a run writes, two writers. */
#include "config.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>

#include "tests/dumps.h"

/* ---- others' files ---- */

/* Files that are called nearly like the part, one of them an input, stay as they are. */
static void neighbours(void)
{
    static const char *const ends[] = {"new", "1", "2", "tmp"};
    enum { N = sizeof ends / sizeof *ends };
    struct experiment x = experiment(2, SAVE_ALL, 0, 0);
    struct trial reading[2];
    char name[N][100], text[100];
    int there = 0, e = 0;

    memcpy(reading, trials, sizeof reading);
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "%s.%s", part, ends[i]);
        e |= write_text(name[i], name[i]);
    }
    snprintf(reading[0].file, sizeof reading[0].file, "%s", name[0]);
    x.trial = reading;
    ok(!e && !write_some(&x, 0, 0, 1) && !write_some(&x, STORE_RESUME, 1, 2),
       "a run beside files of others, begun and resumed");
    for (int i = 0; i < N; i++)
        there += holds_text(name[i], name[i]);
    ok(there == N && clean_fresh() == N, "which stay, and there is no other");
    clean();

    x.trial = trials;
    for (int i = 1; i < 100; i++) {
        snprintf(text, sizeof text, "%s.%d", part, i);
        e |= write_text(text, text);
    }
    says(e || !store_open(&x, 0), ".part.99 are in the way", "where all names are taken");
    ok(clean_fresh() == 99 && access(part, F_OK) != 0, "it is an error, and no part is left");
}

/* Changes by other programs while the files are written. */
static void changes_by_others(void)
{
    struct experiment x = experiment(1, SAVE_NONE, 0, 0);
    char away[80];

    snprintf(away, sizeof away, "%s.away", output);
    struct store *s = store_open(&x, 0);
    int e = !s || store_write(s, 0, &results[0]) || write_text(output, "mine");
    says(e || store_close(s, 1), "has been made meanwhile", "an output that appears meanwhile");
    ok(holds_text(output, "mine") && complete(part, 1, SAVE_NONE) == 1, "both are there");
    unlink(output);
    ok(!write_some(&x, 1, 0, 1) && there(output), "and --resume ends it");
    clean();
    s = store_open(&x, STORE_WHOLE);
    e = !s || store_write(s, 0, &results[0]) || write_text(output, "mine");
    says(e || store_close(s, 1), "has been made meanwhile", "an output that appears, again");
    ok(holds_text(output, "mine") && !there(part), "where no part is to be left, none is");
    clean();
    s = store_open(&x, 0);
    e = !s || store_write(s, 0, &results[0]) || rename(part, away) || write_text(part, "mine");
    says(e || store_close(s, 1), "has moved or replaced it", "a part that was moved");
    ok(holds_text(part, "mine") && !there(output), "the file in its place is not the output");
    unlink(away);
    clean();
}

/* ---- two writers ---- */

static int second_writer(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    int refused = 0;
    for (int resume = 0; resume < 2; resume++)
        refused += !store_open(&x, resume) && strstr(err_text(), " has it open") != NULL;
    return refused;
}

static void two_writers(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    struct store *s = store_open(&x, 0);
    int e = !s || store_write(s, 0, &results[0]);
    ok(!e && in_child(second_writer) == 2, "a second writer is refused");
    e = e || store_write(s, 1, &results[1]);
    ok(s && !store_close(s, 0) && !e && complete(part, 4, SAVE_ALL) == 2, "and the first goes on");
    clean();
}

/* One of a pair of processes: wait for the start, then write a plan of that name. */
static int one_of_pair(const char *name, int start)
{
    static const char *const clear[] = {" has it open", "holds another plan"};
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    char byte;

    snprintf(x.name, sizeof x.name, "%s", name);
    if (read(start, &byte, 1) < 0)
        return 3;
    if (!write_some(&x, 0, 0, 4))
        return 0;
    for (size_t i = 0; i < COUNT(clear); i++)
        if (strstr(err_text(), clear[i]))
            return 1;
    printf("# %s: %s\n", name, err_text());
    fflush(stdout);
    return 2;
}

/* Two plans with one output: 0 where the file is that of one plan, and the other was refused. */
static int pair(void)
{
    static const char *const names[] = {"one", "other"};
    int start[2], status[2] = {-1, -1};
    pid_t child[2];

    if (pipe(start))
        return -1;
    fflush(stdout);
    for (int k = 0; k < 2; k++)
        if ((child[k] = fork()) == 0) {
            close(start[1]);
            _exit(one_of_pair(names[k], start[0]));
        }
    close(start[0]);
    close(start[1]); /* both read its end */
    for (int k = 0; k < 2; k++)
        if (waitpid(child[k], &status[k], 0) != child[k])
            return -1;
    int winner = status[0] != 0;
    hid_t f = H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    int own = f >= 0 && is_text(f, "name", names[winner]);
    if (f >= 0)
        H5Fclose(f);
    return own && complete(output, 4, SAVE_ALL) == 4 && WEXITSTATUS(status[winner]) == 0 &&
                   WEXITSTATUS(status[!winner]) == 1
               ? 0
               : -1;
}

static void pairs(void)
{
    enum { PAIRS = 20 };
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    int bad = 0;

    for (int r = 0; r < PAIRS; r++) {
        clean();
        if (r % 2)
            bad += write_some(&x, 0, 0, 0); /* a part that both would discard */
        bad += pair() != 0;
    }
    if (!ok(!bad, "of %d pairs started together one writes its file, the other is refused", PAIRS))
        printf("# %d went wrong\n", bad);
    clean();
}

int main(void)
{
    trials_new();
    neighbours();
    changes_by_others();
    two_writers();
    pairs();
    trials_free();
    return done();
}
