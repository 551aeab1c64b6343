/* run-ablation --report (page.h): the page is written under another name beside its own, and
 * renamed. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/quote.h"
#include "common/page/page.h"
#include "experiments/page.h"

enum { GOOD = 0, BAD_INPUT = 2 };
enum { MAX_NAME = 1000 };

/* The page's name: NAME.html of NAME.h5, NAME.h5.part or NAME. */
static int name_of(const char *dump, const char *output, char name[MAX_NAME])
{
    static const char *const suffix[] = {".part", ".h5", ".hdf5"};
    size_t n = strlen(output ? output : dump);

    if (n >= MAX_NAME - 16)
        return err_set("the name of the page is too long");
    memcpy(name, output ? output : dump, n + 1);
    for (size_t i = 0; !output && i < COUNT(suffix); i++) {
        const size_t end = strlen(suffix[i]);
        if (n > end && strcmp(name + n - end, suffix[i]) == 0 && name[n - end - 1] != '/')
            name[n -= end] = 0;
    }
    if (!output)
        strcpy(name + n, ".html");
    return 0;
}

/* Only another page, or an empty file, is replaced. */
static int check_replaced(const char *name)
{
    char line[sizeof PAGE_FIRST_LINE] = "";
    struct stat is;

    if (stat(name, &is))
        return errno == ENOENT ? 0 : err_set("%s: %s", name, strerror(errno));
    if (!S_ISREG(is.st_mode))
        return err_set("%s: is no regular file; the page must be one", name);
    FILE *f = fopen(name, "r");
    const int known =
        f && (!is.st_size || (fgets(line, sizeof line, f) && strcmp(line, PAGE_FIRST_LINE) == 0));
    if (f)
        fclose(f);
    return known ? 0
                 : err_set("%s: is there and no page of ablate; move it away, or write elsewhere "
                           "with -o",
                           name);
}

/* Writes all of it; nonzero after err_set(). */
static int fill(int fd, const struct page_dump *d, long *bytes)
{
    const mode_t mask = umask(0);
    umask(mask);
    FILE *to = fdopen(fd, "w");

    if (!to) {
        close(fd);
        return err_set("%s", strerror(errno));
    }
    int e = fchmod(fd, 0666 & ~mask) ? err_set("%s", strerror(errno)) : page_write(to, d);
    if (!e && (fflush(to) || ferror(to)))
        e = err_set("%s", strerror(errno));
    *bytes = ftell(to);
    if (fclose(to) && !e)
        e = err_set("%s", strerror(errno));
    return e ? -1 : 0;
}

/* A name that is a symbolic link stays one, and what it leads to is replaced. */
static int save(const struct page_dump *d, const char *name, long *bytes)
{
    char *real = realpath(name, NULL), *part = NULL;
    const char *file = real ? real : name;
    const size_t size = strlen(file) + 16;
    int fd = -1, e = 0;

    if (!(part = malloc(size)))
        e = err_set("no memory for a name");
    if (!e) {
        snprintf(part, size, "%s.XXXXXX", file);
        e = (fd = mkstemp(part)) < 0 ? err_set("%s", strerror(errno)) : fill(fd, d, bytes);
        if (!e && rename(part, file))
            e = err_set("%s", strerror(errno));
        if (e && fd >= 0)
            unlink(part);
    }
    free(part);
    free(real);
    return e ? err_at("%s", name) : 0;
}

int page_command(const char *dump, const char *output)
{
    char name[MAX_NAME];
    long bytes = 0;
    struct page_dump *d = NULL;
    int e = name_of(dump, output, name) || !(d = page_dump_read(dump)) || check_replaced(name) ||
            save(d, name, &bytes);

    if (!e) {
        char *quoted = quote_controls(name);
        printf("wrote %s, %ld bytes\n", quoted ? quoted : "the page", bytes);
        free(quoted);
    }
    page_dump_free(d);
    return e ? BAD_INPUT : GOOD;
}
