/* Writing that is stopped: by a full disk, and by a kill at any write; the trials that were finished
 * read back, and --resume goes on. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/page/dump.h"
#include "tests/counted.h"
#include "tests/dumps.h"

/* ---- a full disk ---- */

static int full_while_writing(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    struct stat at;
    struct store *s = store_open(&x, 0);
    int good = s && !store_write(s, 0, &results[0]) && !store_write(s, 1, &results[1]) &&
               !stat(part, &at) && !full_at(at.st_size + (3 << 20));
    good = good && store_write(s, 5, &results[5]) && strstr(err_text(), ".h5.part: needs ") &&
           strstr(err_text(), " MiB more: File too large");
    /* A smaller trial is still written. */
    good = good && !store_write(s, 2, &results[2]);
    return !(good && !store_close(s, 0));
}

/* There is space for the part, but for no trial. */
static int full_at_first_trial(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    struct stat at;
    struct store *s = store_open(&x, 0);
    int good = s && !stat(part, &at) && !full_at(at.st_size + 1000);
    good = good && store_write(s, 0, &results[0]) && strstr(err_text(), ".h5.part: needs ");
    return !(good && !store_close(s, 0));
}

static int full_from_the_start(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    return full_at(1000) || store_open(&x, 0) || !strstr(err_text(), ".h5.part: needs ");
}

static void full_disk(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    ok(in_child(full_while_writing) == 0, "a full disk: a refusal, then closed");
    ok(complete(part, 6, SAVE_ALL) == 3, "the finished trials are there");
    ok(!write_some(&x, 1, 0, 6) && complete(output, 6, SAVE_ALL) == 6, "with space again, resumed");
    clean();
    ok(in_child(full_at_first_trial) == 0 && !there(part), "full at the first trial: no part");
    ok(in_child(full_from_the_start) == 0 && !there(part), "full from the start: nothing is left");
}

/* ---- kill -9 ---- */

enum { KILL_TRIALS = 3 };

static struct experiment killed;
static int resume_killed;

/* A run that is killed early leaves an empty part, which is as good as none. */
static int has_contents(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 && st.st_size > 0;
}

/* Can a file have no name here? */
static int has_unnamed(void)
{
#ifdef O_TMPFILE
    int fd = open(".", O_TMPFILE | O_RDWR, 0666);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
#else
    return 0;
#endif
}

static int all_of_it(void)
{
    return write_some(&killed, resume_killed, 0, killed.n) != 0;
}

/* All texts that a page shows: none is read that a killed process has not written. */
static int shown(void)
{
    struct page_dump *d = page_dump_read(part);
    const int e = !d || d->n != killed.n;
    page_dump_free(d);
    return e;
}

/* The part after a kill: every complete trial reads back, its page can be made, and a new run can
 * go on to the end.  How many were complete, or -1. */
static int survives(int n)
{
    long left = writes_left;
    writes_left = -1;
    int found = complete(part, n, SAVE_ALL), done_before = there(output);
    if (found == -2 && !has_contents(part))
        found = done_before ? n : 0;
    if (found < 0)
        printf("# the part does not read back\n");
    else if (has_contents(part) && in_child(shown)) {
        printf("# no page can be made of the part\n");
        found = -1;
    }
    resume_killed = 1;
    if (found >= 0 && (in_child(all_of_it) || complete(output, n, SAVE_ALL) != n)) {
        printf("# cannot be resumed\n");
        all_of_it();
        printf("# %s\n", err_text());
        found = -1;
    }
    resume_killed = 0;
    writes_left = left;
    return found;
}

/* Killed at its first write, its second, and so on to its last. */
static void kill_at_each(int cut)
{
    int finished = 0, found[KILL_TRIALS + 1] = {0}, bad = 0, left = 0, k;

    killed = experiment(KILL_TRIALS, SAVE_ALL, 0, 0);
    for (k = 0; COUNTED && !finished && bad < 3; k++) {
        writes_left = k;
        torn = cut;
        clean();
        finished = in_child(all_of_it) == 0;
        int n = finished ? KILL_TRIALS : survives(KILL_TRIALS);
        if (n < 0)
            printf("# write %d\n", k);
        bad += n < 0;
        if (n >= 0)
            found[n]++;
        left += clean_fresh();
    }
    /* HDF5 writes once when it opens the new part, which has its first name then. */
    if (left > 1 && has_unnamed()) {
        printf("# %d files beside the part were left\n", left);
        bad++;
    }
    writes_left = -1;
    clean();
    killed_at_every_write(k, !bad && finished, found, cut);
}

static unsigned long long random_number(void)
{
    static uint64_t i;
    return (unsigned long long)(1e9 * draw_uniform(2024, i++));
}

static void kill_at_random(int rounds)
{
    int bad = 0, max = 0, during = 0;

    killed = experiment(12, SAVE_ALL, 1, 0);
    for (int r = 0; r < rounds; r++) {
        int status;
        if (r % 3 == 0)
            clean();
        resume_killed = r % 3 != 0; /* now and then with the part of the last one */
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(all_of_it());
        struct timespec wait = {0, (long)(random_number() % 40000000)};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        during += WIFSIGNALED(status);
        int n = complete(there(output) ? output : part, 12, SAVE_ALL);
        bad += n == -1 || (n == -2 && has_contents(part));
        max = n > max ? n : max;
        if (there(output))
            clean();
    }
    resume_killed = 1;
    bad += in_child(all_of_it) != 0 || complete(output, 12, SAVE_ALL) != 12;
    ok(!bad && during > 0, "killed at random moments, %d times", during);
    printf("# %d left a file beside the part\n", clean_fresh());
    printf("# up to %d of 12 trials were complete\n", max);
    clean();
}

int main(void)
{
    trials_new();
    full_disk();
    kill_at_each(0);
    kill_at_each(1);
    kill_at_random(30);
    trials_free();
    return done();
}
