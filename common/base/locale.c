/* C's locale for a thread, for a while (locale.h). */
#include "config.h"

#include <pthread.h>

#include "common/base/locale.h"

static locale_t plain;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", NULL);
}

/* (uselocale(NULL) changes nothing: so it is where there is no memory for C's.) */
locale_t locale_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_plain);
    return uselocale(plain);
}

void locale_end(locale_t was)
{
    uselocale(was);
}
