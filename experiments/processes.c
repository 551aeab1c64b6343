/* Members: a rank has a socket to each of its own, and messages by MPI for the others (processes.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "experiments/processes.h"

#define SOCKET_OF "ABLATE_LEADER" /* the descriptor and the leader's process */
enum { MOST_WAIT = 30 };          /* seconds, at the end */
enum { BY_MPI_EACH = 2 };         /* milliseconds: MPI has nothing to poll */

/* One end of a socket.  A message is its length, and its bytes. */
struct line {
    int fd; /* -1: it is closed */
    unsigned char *got;
    size_t n, capacity; /* of got */
};

struct member {
    struct line line;
    pid_t process;
    int rank;       /* 0: it is a child of this process */
    int number, of; /* on its node */
    int lost, said; /* and the leader knows */
    char why[80];
};

struct processes {
    int n, next; /* the next to be looked at first */
    int local;   /* those that are children */
    struct member *member;
};

/* ---- messages ---- */

static int write_all(int fd, const void *from, size_t bytes)
{
    const char *at = from;

    while (bytes) {
        const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int line_send(struct line *l, const void *message, size_t bytes)
{
    const uint64_t length = bytes;

    return l->fd < 0 || write_all(l->fd, &length, sizeof length) || write_all(l->fd, message, bytes)
               ? -1
               : 0;
}

/* Takes what is there, without waiting.  0: the other end is closed, or there is no memory. */
static int line_read(struct line *l)
{
    enum { CHUNK = 1 << 16 };

    if (l->capacity < l->n + CHUNK) {
        unsigned char *more = realloc(l->got, 2 * (l->n + CHUNK));
        if (!more)
            return 0;
        l->got = more;
        l->capacity = 2 * (l->n + CHUNK);
    }
    const ssize_t n = recv(l->fd, l->got + l->n, l->capacity - l->n, MSG_DONTWAIT);
    if (n > 0)
        l->n += (size_t)n;
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK));
}

/* Puts one there that came by MPI.  Nonzero: no memory. */
static int line_put(struct line *l, const void *message, size_t bytes)
{
    const uint64_t length = bytes;
    const size_t n = l->n + sizeof length + bytes;

    if (l->capacity < n) {
        unsigned char *more = realloc(l->got, 2 * n);
        if (!more)
            return -1;
        l->got = more;
        l->capacity = 2 * n;
    }
    memcpy(l->got + l->n, &length, sizeof length);
    memcpy(l->got + l->n + sizeof length, message, bytes);
    l->n = n;
    return 0;
}

/* The first message that is whole; returns its bytes, 0: none is, -1: no memory. */
static long line_take(struct line *l, void **message)
{
    uint64_t length;

    if (l->n < sizeof length)
        return 0;
    memcpy(&length, l->got, sizeof length);
    if (l->n - sizeof length < length)
        return 0;
    *message = malloc(length + 1);
    if (!*message)
        return -1;
    memcpy(*message, l->got + sizeof length, length);
    l->n -= sizeof length + length;
    memmove(l->got, l->got + sizeof length + length, l->n);
    return (long)length;
}

static void line_close(struct line *l)
{
    if (l->fd >= 0)
        close(l->fd);
    free(l->got);
    *l = (struct line){.fd = -1};
}

/* ---- the leader ---- */

/* In the new process: its end is fd. */
static void become_member(int fd, pid_t leader, char *const *argv)
{
    char text[40];

    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the leader ends: what runs here leaves its checkpoint */
    if (getppid() != leader || fcntl(fd, F_SETFD, 0))
        _exit(127);
    snprintf(text, sizeof text, "%d %ld", fd, (long)leader);
    if (!setenv(SOCKET_OF, text, 1))
        execv("/proc/self/exe", argv);
    _exit(127);
}

static int start_member(struct member *m, char *const *argv)
{
    const pid_t leader = getpid();
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return err_set("no socket for a process: %s", strerror(errno));
    m->process = fork();
    if (m->process == 0)
        become_member(pair[1], leader, argv);
    close(pair[1]);
    m->line = (struct line){.fd = pair[0]};
    if (m->process > 0)
        return 0;
    line_close(&m->line);
    return err_set("a process cannot be started: %s", strerror(errno));
}

/* Those of the other ranks, which say where they are. */
static void add_ranks(struct processes *c, const struct ranks *own)
{
    enum rank_tag tag;
    void *message;
    int rank;

    for (int i = 1; i < own->size; i++)
        c->member[c->n++] = (struct member){.line = {.fd = -1}, .rank = i};
    for (int known = 1; known < own->size;) {
        if (rank_receive(&rank, &tag, &message) < 0) {
            usleep(1000);
            continue;
        }
        const struct ranks *is = message;
        struct member *m = &c->member[c->local + rank - 1];
        m->number = is->local;
        m->of = is->locals;
        known++;
        free(message);
    }
}

struct processes *processes_start(int n, const struct ranks *own, char *const *argv)
{
    struct processes *c = calloc(1, sizeof *c);
    int e = 0;

    if (c)
        c->member = calloc((size_t)n + own->size, sizeof *c->member);
    if (!c || !c->member) {
        free(c);
        return err_null("no memory for %d processes", n);
    }
    fflush(NULL);
    for (; !e && c->local < n; c->local++, c->n++) {
        c->member[c->n].number = own->size > 1 ? own->local : c->n;
        c->member[c->n].of = own->size > 1 ? own->locals : n;
        e = start_member(&c->member[c->n], argv);
    }
    if (e) {
        processes_stop(c);
        processes_end(c);
        return NULL;
    }
    add_ranks(c, own);
    return c;
}

void process_place(const struct processes *c, int member, int *number, int *of)
{
    *number = c->member[member].number;
    *of = c->member[member].of;
}

int processes_count(const struct processes *c)
{
    return c->n;
}

int process_send(struct processes *c, int member, const void *message, size_t bytes)
{
    struct member *m = &c->member[member];

    if (m->rank && !m->lost)
        rank_send(m->rank, RANK_MESSAGE, message, bytes);
    return m->lost || (!m->rank && line_send(&m->line, message, bytes));
}

/* Waits for it, so long; its end, as words. */
static void end_of(struct member *m, int flags, char *why, size_t size)
{
    int status;
    pid_t got;

    do
        got = waitpid(m->process, &status, flags);
    while (got < 0 && errno == EINTR);
    if (got != m->process)
        snprintf(why, size, "its socket is closed");
    else if (WIFSIGNALED(status))
        snprintf(why, size, "ended by signal %d", WTERMSIG(status));
    else
        snprintf(why, size, "ended with exit status %d", WEXITSTATUS(status));
    if (got == m->process)
        m->process = 0;
}

static void lose(struct member *m)
{
    m->lost = 1;
    if (m->process > 0)
        kill(m->process, SIGKILL);
    close(m->line.fd); /* what it had said is still to be read */
    m->line.fd = -1;
}

/* What is there of that member. */
static int look_at(struct processes *c, int i, struct received *to)
{
    struct member *m = &c->member[i];
    const long n = line_take(&m->line, &to->message);

    if (n < 0)
        return err_set("no memory for a message");
    to->member = i;
    to->bytes = (size_t)n;
    if (n > 0)
        to->what = RECEIVED_MESSAGE;
    else if (m->lost && !m->said) {
        m->said = 1;
        to->what = RECEIVED_LOST;
        if (!m->rank)
            end_of(m, 0, m->why, sizeof m->why);
        snprintf(to->why, sizeof to->why, "%s", m->why);
    }
    return 0;
}

static int look(struct processes *c, struct received *to)
{
    for (int k = 0; k < c->n; k++) {
        const int i = (c->next + k) % c->n;
        if (look_at(c, i, to))
            return -1;
        if (to->what != RECEIVED_NOTHING) {
            c->next = (i + 1) % c->n;
            return 0;
        }
    }
    return 0;
}

/* What came by MPI.  Nonzero: no memory. */
static int receive(struct processes *c)
{
    enum rank_tag tag;
    void *message;
    int rank, e = 0;
    long n;

    while (!e && c->n > c->local && (n = rank_receive(&rank, &tag, &message)) >= 0) {
        struct member *m = &c->member[c->local + rank - 1];
        if (tag == RANK_MESSAGE)
            e = line_put(&m->line, message, (size_t)n);
        else if (tag == RANK_LOST) {
            m->lost = 1;
            snprintf(m->why, sizeof m->why, "%.*s", (int)n, (const char *)message);
        }
        free(message);
    }
    return e ? err_set("no memory for a message") : 0;
}

/* What came by the sockets, waiting so long. */
static int read_lines(struct processes *c, int milliseconds)
{
    struct pollfd *p = calloc((size_t)c->local + 1, sizeof *p);

    if (!p)
        return err_set("no memory to wait");
    for (int i = 0; i < c->local; i++)
        p[i] = (struct pollfd){.fd = c->member[i].line.fd, .events = POLLIN};
    if (poll(p, (nfds_t)c->local, milliseconds) > 0)
        for (int i = 0; i < c->local; i++)
            if (p[i].revents && !line_read(&c->member[i].line))
                lose(&c->member[i]);
    free(p);
    return 0;
}

int processes_receive(struct processes *c, int milliseconds, struct received *to)
{
    const double until = seconds_now() + milliseconds / 1000.;
    const int each = c->n > c->local ? BY_MPI_EACH : milliseconds;

    *to = (struct received){.what = RECEIVED_NOTHING};
    do
        if (receive(c) || look(c, to) ||
            (to->what == RECEIVED_NOTHING && (read_lines(c, each) || look(c, to))))
            return -1;
    while (to->what == RECEIVED_NOTHING && each < milliseconds && seconds_now() < until);
    return 0;
}

void processes_stop(struct processes *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->member[i].rank)
            rank_send(c->member[i].rank, RANK_STOPS, NULL, 0);
        else if (!c->member[i].lost && c->member[i].process > 0)
            kill(c->member[i].process, SIGTERM);
}

void processes_end(struct processes *c)
{
    const double began = seconds_now();

    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        line_close(&c->member[i].line);
    for (int i = 0; i < c->local; i++) {
        struct member *m = &c->member[i];
        while (m->process > 0 && waitpid(m->process, NULL, WNOHANG) == 0) {
            if (seconds_now() - began > MOST_WAIT)
                kill(m->process, SIGKILL);
            usleep(1000);
        }
    }
    free(c->member);
    free(c);
}

/* ---- another rank ---- */

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

/* Rank 0's, in another one. */
struct served {
    struct processes *c; /* of one; NULL: no message has come */
    char *const *argv;
};

/* A message for the member, which begins with the first. */
static void pass_on(struct served *s, const void *message, size_t bytes)
{
    static const struct ranks alone = {0, 1, 0, 1};

    if (!s->c && !(s->c = processes_start(1, &alone, s->argv)))
        rank_send(0, RANK_LOST, err_text(), strlen(err_text()));
    else
        process_send(s->c, 0, message, bytes);
}

/* What rank 0 sends; nonzero: the end. */
static int obey(struct served *s)
{
    enum rank_tag tag;
    void *message;
    int rank, over = 0;
    long n;

    while (!over && (n = rank_receive(&rank, &tag, &message)) >= 0) {
        if (tag == RANK_MESSAGE)
            pass_on(s, message, (size_t)n);
        else if (tag == RANK_STOPS && s->c)
            processes_stop(s->c);
        over = tag == RANK_ENDS;
        free(message);
    }
    return over;
}

/* What the member says. */
static void report(struct served *s)
{
    struct received got;

    if (processes_receive(s->c, BY_MPI_EACH, &got))
        rank_send(0, RANK_LOST, err_text(), strlen(err_text()));
    else if (got.what == RECEIVED_MESSAGE)
        rank_send(0, RANK_MESSAGE, got.message, got.bytes);
    else if (got.what == RECEIVED_LOST)
        rank_send(0, RANK_LOST, got.why, strlen(got.why));
    free(got.message);
}

int processes_serve(char *const *argv)
{
    const struct sigaction a = {.sa_handler = on_signal};
    struct served s = {.argv = argv};

    /* A launcher sends them to all: the member ends early, this rank with rank 0. */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    while (!obey(&s)) {
        if (stop_asked && s.c)
            processes_stop(s.c);
        stop_asked = 0;
        if (s.c)
            report(&s);
        else
            usleep(1000 * BY_MPI_EACH);
    }
    processes_end(s.c);
    return 0;
}

/* ---- a member ---- */

struct leader {
    struct line line;
};

struct leader *process_leader(void)
{
    static struct leader l;
    const char *text = getenv(SOCKET_OF);
    int fd;
    long process;

    if (!text || sscanf(text, "%d %ld", &fd, &process) != 2 || process != (long)getppid())
        return NULL;
    unsetenv(SOCKET_OF);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC))
        return NULL;
    l.line = (struct line){.fd = fd};
    return &l;
}

int leader_send(struct leader *l, const void *message, size_t bytes)
{
    return line_send(&l->line, message, bytes);
}

long leader_receive(struct leader *l, int milliseconds, void **message)
{
    const double until = seconds_now() + milliseconds / 1000.;

    for (;;) {
        const long n = line_take(&l->line, message);
        if (n)
            return n;
        double left = milliseconds < 0 ? -1 : 1000 * (until - seconds_now());
        struct pollfd p = {.fd = l->line.fd, .events = POLLIN};
        const int there = poll(&p, 1, milliseconds < 0 ? -1 : left > 0 ? (int)left + 1 : 0);
        if (there < 0 && errno == EINTR)
            return 0;
        if (there == 0)
            return 0;
        if (!line_read(&l->line))
            return -1;
    }
}
