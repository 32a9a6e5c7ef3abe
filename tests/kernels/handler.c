// A signal handler that counts how often it ran, and how often in code whose stack pointer had left the main thread's stack.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

long handled, off_stack;
static char own_stack[1 << 16];  // of the handler, so that it overwrites nothing in either case
static greg_t low, high;

static void handle(int number, siginfo_t* info, void* context) {
    const greg_t pointer = ((ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
    if (syscall(SYS_gettid) != getpid()) return;
    handled++;
    if (pointer < low || pointer >= high) off_stack++;
}

// To be called by the main thread.
void install(int number) {
    pthread_attr_t attributes;
    void* stack;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    low = (greg_t)stack, high = low + (greg_t)size;
    const stack_t other = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    sigaltstack(&other, 0);
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigaction(number, &action, 0);
}
