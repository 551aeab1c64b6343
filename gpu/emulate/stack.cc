/* stack.cc - the fibers' stacks, and switching between them. */
#include "gpu/emulate/internal.h"

#include <sys/mman.h>
#include <atomic>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_KIB = 512 };
#else
enum { STACK_KIB = 64 };
#endif

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

using namespace emu;

static const size_t stack_bytes = 1024 * (size_t)env("EMU_STACK", STACK_KIB);
static const uint64_t CANARY = 0x5afe57ac6ca4a121;

/* A host thread's stacks that are not in use, which it unmaps when it ends. */
namespace {
struct stack_pool {
    std::vector<stack *> free;
    ~stack_pool();
};
}
static thread_local stack_pool pool;

/* ---- switching ---- */

/* emu_swap(&from, to): push the callee-saved registers, store the stack pointer in
 * from, continue on the stack to. */
#ifndef EMU_UCONTEXT
extern "C" void emu_swap(void **from, void *to);
#if defined __x86_64__
asm(".text\n.globl emu_swap\n.type emu_swap,@function\nemu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_swap,.-emu_swap\n");
enum { SAVED = 6 };            /* words below the return address */
#elif defined __aarch64__
asm(".text\n.globl emu_swap\n.type emu_swap,%function\nemu_swap:\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n"
    ".size emu_swap,.-emu_swap\n");
#else
#error "no context switch for this machine: compile with -DEMU_UCONTEXT"
#endif
#endif

/* ASan must be given the next stack's bounds; it returns those of the host's stack when
 * a thread is entered for the first time. */
#ifdef __SANITIZE_ADDRESS__
static __thread const void *host_base;
static __thread size_t host_size;
#endif

void emu::stack_entered(void)
{
#ifdef __SANITIZE_ADDRESS__
    const void *base;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &base, &size);
    if (!host_base)            /* the first one, which the host started */
        host_base = base, host_size = size;
#endif
}

void emu::stack_switch(stack *from, stack *to, bool for_ever)
{
    (void)for_ever;
#ifdef __SANITIZE_THREAD__
    if (from == &G->host)
        from->fake = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->fake, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
    bool home = to == &G->host;
    __sanitizer_start_switch_fiber(for_ever ? NULL : &from->fake, home ? host_base : to->base,
                                   home ? host_size : stack_bytes);
#endif
#ifdef EMU_UCONTEXT
    swapcontext(&from->uc, &to->uc);
#else
    emu_swap(&from->sp, to->sp);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}

/* ---- stacks ---- */

#ifndef EMU_UCONTEXT
extern "C" void emu_stack_start(void)
{
    run_thread();
}
#endif

static void stack_prepare(stack *s)
{
#ifdef __SANITIZE_ADDRESS__
    /* A thread that has returned leaves the frames of run_thread() and of what that called, no others. */
    const size_t left = s->abandoned ? stack_bytes : std::min(stack_bytes, (size_t)8192);
    ASAN_UNPOISON_MEMORY_REGION(s->base + stack_bytes - left, left);
    s->abandoned = false;
    s->fake = NULL;
#endif
#ifdef __SANITIZE_THREAD__
    if (!s->fake)
        s->fake = __tsan_create_fiber(0);
#endif
    *(uint64_t *)s->base = CANARY;
#ifdef EMU_UCONTEXT
    getcontext(&s->uc);
    s->uc.uc_stack.ss_sp = s->base;
    s->uc.uc_stack.ss_size = stack_bytes;
    s->uc.uc_link = NULL;
    makecontext(&s->uc, run_thread, 0);
#else
    void **top = (void **)(s->base + stack_bytes) - 4;
#if defined __x86_64__
    *++top = NULL;                                 /* as if called: 8 past a multiple of 16 */
    *--top = (void *)emu_stack_start;              /* where ret goes */
    for (int i = 0; i < SAVED; i++)
        *--top = NULL;
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (void *)emu_stack_start;             /* x30 */
#endif
    s->sp = top;
#endif
}

stack *emu::stack_new(void)
{
    stack *s;
    if (!pool.free.empty()) {
        s = pool.free.back();
        pool.free.pop_back();
    } else {
        static std::atomic<int> guards;
        s = (stack *)calloc(1, sizeof *s);
        s->base = (char *)mmap(NULL, stack_bytes + 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s->base == MAP_FAILED) {
            perror("emulate: a thread's stack");
            abort();
        }
        if (guards++ < 16000)      /* the kernel allows 65530 mappings */
            mprotect(s->base, 4096, PROT_NONE);
        s->base += 4096;
    }
    stack_prepare(s);
    return s;
}

void emu::stack_free(stack *s, bool abandoned)
{
    s->abandoned = abandoned;
    pool.free.push_back(s);
}

stack_pool::~stack_pool()
{
    for (stack *s : free) {
#ifdef __SANITIZE_ADDRESS__
        ASAN_UNPOISON_MEMORY_REGION(s->base, stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
        __tsan_destroy_fiber(s->fake);
#endif
        munmap(s->base - 4096, stack_bytes + 4096);
        ::free(s);
    }
}

void emu::stack_check(const thread *t)
{
    if (*(uint64_t *)t->stack->base != CANARY)
        emu_fault(t->here, "stack overflow: more than %zu KiB (EMU_STACK)", stack_bytes / 1024);
}

bool emu::stack_contains(const stack *s, const void *p)
{
    return (char *)p >= s->base && (char *)p < s->base + stack_bytes;
}
