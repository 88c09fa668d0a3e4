/* What the walk over a log's lines has just seen, so that a line that comes again costs no object of Python's.

   The sets that gpudoctor.read.nccl_cut hands in decide; here is remembered what they answered, only where they answered `known`,
   and every comparison is of the bytes themselves. Each table has a fixed size and forgets what falls into the same place: that
   costs time and nothing else. */

#include <stdint.h>

#define THREADS 8192 /* places; powers of two */
#define PROCESSES 4096
#define TELLINGS 32768
#define WORDS 512

typedef struct {
    uint64_t hash;
    PyObject *head, *told, *fellows; /* what stands before the mark; what its thread told; what the threads of its process did */
} Thread;
typedef struct {
    PyObject *fellows;
    uint64_t since; /* differs each time that the process names a communicator: what was told before is of another */
} Process;
typedef struct {
    uint64_t hash, since;
    PyObject *told, *rest; /* a line behind its channel, which is in that set */
} Telling;
typedef struct {
    uint64_t letters;
    int known, quiet, silent, asked, naming; /* the sets in which these first bytes of a message are */
} Kind;
typedef struct {
    Thread threads[THREADS];
    Process processes[PROCESSES];
    Telling tellings[TELLINGS];
    Kind kinds[WORDS];
    uint64_t count;
} Memory;

static uint64_t mixed(uint64_t a, uint64_t b) {
    a = (a ^ b) * 0x9E3779B97F4A7C15u;
    return a ^ (a >> 29);
}

/* Of at most so many bytes as are there; who makes them coincide on purpose only makes his own log slow to read. */
static uint64_t hash_of(const char *from, Py_ssize_t length, uint64_t hash) {
    uint64_t word;
    hash = mixed(hash, (uint64_t)length);
    for (; length >= 8; from += 8, length -= 8) {
        memcpy(&word, from, 8);
        hash = mixed(hash, word);
    }
    if (length > 0) {
        word = 0;
        memcpy(&word, from, length);
        hash = mixed(hash, word);
    }
    return hash;
}

static int same(PyObject *known, const char *from, Py_ssize_t length) {
    return PyBytes_Size(known) == length && memcmp(PyBytes_AsString(known), from, length) == 0;
}

/* Takes what is at `place` away and puts `item` there. */
static void keep(PyObject **place, PyObject *item) {
    PyObject *before = *place;
    Py_XINCREF(item);
    *place = item;
    Py_XDECREF(before);
}

static Thread *thread_of(Memory *memory, const char *head, Py_ssize_t length, uint64_t hash) {
    Thread *thread = &memory->threads[hash & (THREADS - 1)];
    return thread->head != NULL && thread->hash == hash && same(thread->head, head, length) ? thread : NULL;
}

static Thread *new_thread(Memory *memory, uint64_t hash, PyObject *head, PyObject *told, PyObject *fellows) {
    Thread *thread = &memory->threads[hash & (THREADS - 1)];
    thread->hash = hash;
    keep(&thread->head, head);
    keep(&thread->told, told);
    keep(&thread->fellows, fellows);
    return thread;
}

static Process *process_of(Memory *memory, PyObject *fellows) {
    Process *process = &memory->processes[((uintptr_t)fellows >> 4) & (PROCESSES - 1)];
    if (process->fellows != fellows) {
        keep(&process->fellows, fellows);
        process->since = ++memory->count;
    }
    return process;
}

static Telling *place_of(Memory *memory, const Thread *thread, const char *rest, Py_ssize_t length, uint64_t *hash) {
    *hash = hash_of(rest, length, thread->hash);
    return &memory->tellings[*hash & (TELLINGS - 1)];
}

/* Did the thread tell this since its process last named a communicator? 0 may also mean that it is not remembered. */
static int was_told(Memory *memory, const Thread *thread, const char *rest, Py_ssize_t length) {
    uint64_t hash;
    const Telling *telling = place_of(memory, thread, rest, length, &hash);
    return telling->rest != NULL && telling->hash == hash && telling->told == thread->told &&
           telling->since == process_of(memory, thread->fellows)->since && same(telling->rest, rest, length);
}

static void remember_told(Memory *memory, const Thread *thread, PyObject *rest) {
    uint64_t hash;
    Telling *telling = place_of(memory, thread, PyBytes_AsString(rest), PyBytes_Size(rest), &hash);
    telling->hash = hash;
    telling->since = process_of(memory, thread->fellows)->since;
    keep(&telling->told, thread->told);
    keep(&telling->rest, rest);
}

static void forget_told(Memory *memory, PyObject *fellows) { process_of(memory, fellows)->since = ++memory->count; }

/* What every thread told is of another communicator, or of another text. */
static void forget_every_told(Memory *memory) {
    for (int at = 0; at < PROCESSES; at++) keep(&memory->processes[at].fellows, NULL); /* found again, each has another `since` */
}

static void forget_all(Memory *memory) {
    forget_every_told(memory);
    for (int at = 0; at < THREADS; at++) {
        keep(&memory->threads[at].head, NULL);
        keep(&memory->threads[at].told, NULL);
        keep(&memory->threads[at].fellows, NULL);
    }
    for (int at = 0; at < TELLINGS; at++) {
        keep(&memory->tellings[at].told, NULL);
        keep(&memory->tellings[at].rest, NULL);
    }
}
