/* Single messages of which a large job writes two for each rank of each communicator, and the bytes of a text.

   A message is read here only if it is of the one form that nearly all have, to its last byte; for any other, and for any number
   that is longer than those of real jobs, the answer is None, and gpudoctor.parsers reads it by its expressions. */

#include "_words.h"
#include <string.h>

#define DIGITS 18 /* of a number that fits */

typedef struct {
    const char *at, *end;
} Rest;

/* Does the rest begin with this? Then it is passed. */
static int passed(Rest *rest, const char *words) {
    const Py_ssize_t length = (Py_ssize_t)strlen(words);
    if (rest->end - rest->at < length || memcmp(rest->at, words, length) != 0) return 0;
    rest->at += length;
    return 1;
}

static int digit(char c) { return c >= '0' && c <= '9'; }
static int hex(char c) { return digit(c) || (c >= 'a' && c <= 'f'); }
static int letter(char c) { return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* How many characters of a kind are passed. */
static Py_ssize_t all(Rest *rest, int (*kind)(char)) {
    const char *from = rest->at;
    while (rest->at < rest->end && kind(*rest->at)) rest->at++;
    return rest->at - from;
}

/* Words and the number behind them. */
static int number(Rest *rest, const char *words, long long *value) {
    if (!passed(rest, words)) return 0;
    const Py_ssize_t length = all(rest, digit);
    if (length < 1 || length > DIGITS) return 0;
    *value = 0;
    for (const char *at = rest->at - length; at < rest->at; at++) *value = *value * 10 + (*at - '0');
    return 1;
}

static int at_end(Rest *rest) {
    (void)passed(rest, "\r");
    return passed(rest, "\n") && rest->at == rest->end;
}

static int begin(PyObject *message, Rest *rest) {
    char *from;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(message, &from, &length) < 0) return 0;
    rest->at = from;
    rest->end = from + length;
    return 1;
}

static PyObject *none(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

const char communicator_doc[] =
    "communicator(message)\n\n"
    "Of `ncclCommInitRank comm 0x… rank … nranks … cudaDev … nvmlDev … busId … commId 0x… - Init START` (or COMPLETE):\n"
    "(pointer, rank, nranks, b'Init START', (cudaDev, nvmlDev, busId, commId, the words of the three devices));\n"
    "of `comm 0x… rank … nRanks … nNodes … localRanks … localRank … MNNVL …`: (pointer, rank, nranks, b'', (nNodes, localRanks,\n"
    "localRank)). None for any other.";

PyObject *communicator(PyObject *module, PyObject *message) {
    Rest rest;
    long long rank, nranks, first, second, third;
    (void)module;
    if (!begin(message, &rest)) return NULL;
    const int nodes = passed(&rest, "comm ");
    if (!nodes && (all(&rest, letter) < 1 || !passed(&rest, " comm "))) return none();
    const char *const pointer = rest.at;
    if (!passed(&rest, "0x") || all(&rest, hex) < 1) return none();
    const Py_ssize_t pointed = rest.at - pointer;
    if (!number(&rest, " rank ", &rank) || !number(&rest, nodes ? " nRanks " : " nranks ", &nranks)) return none();
    if (nodes) {
        long long fabric;
        if (!number(&rest, " nNodes ", &first) || !number(&rest, " localRanks ", &second) || !number(&rest, " localRank ", &third) ||
            !number(&rest, " MNNVL ", &fabric) || !at_end(&rest))
            return none();
        return Py_BuildValue("s#LLy(LLL)", pointer, pointed, rank, nranks, "", first, second, third);
    }
    const char *const cuda = rest.at + sizeof(" cudaDev ") - 1;
    if (!number(&rest, " cudaDev ", &first)) return none();
    const Py_ssize_t cudas = rest.at - cuda;
    const char *const nvml = rest.at + sizeof(" nvmlDev ") - 1;
    if (!number(&rest, " nvmlDev ", &second)) return none();
    const Py_ssize_t nvmls = rest.at - nvml;
    if (!passed(&rest, " busId ")) return none();
    const char *const bus = rest.at;
    const Py_ssize_t buses = all(&rest, hex);
    if (buses < 1 || !passed(&rest, " commId ")) return none();
    const char *const id = rest.at;
    if (!passed(&rest, "0x") || all(&rest, hex) < 1) return none();
    const Py_ssize_t ids = rest.at - id;
    const char *const state = rest.at + sizeof(" - ") - 1;
    if (!passed(&rest, " - Init START") && !passed(&rest, " - Init COMPLETE")) return none();
    const Py_ssize_t states = rest.at - state;
    if (!at_end(&rest)) return none();
    return Py_BuildValue("s#LLy#(LLs#s#(y#y#y#))", pointer, pointed, rank, nranks, state, states, first, second, bus, buses, id, ids,
                         cuda, cudas, nvml, nvmls, bus, buses);
}

const char timings_doc[] =
    "timings(message)\n\n"
    "Of `Init timings - ncclCommInitRank: rank … nranks … total 2.21 (kernels 0.33, …)`: (rank, nranks, b'2.21', 'kernels 0.33, …').\n"
    "None for any other.";

PyObject *timings(PyObject *module, PyObject *message) {
    Rest rest;
    long long rank, nranks;
    (void)module;
    if (!begin(message, &rest)) return NULL;
    if (!passed(&rest, "Init timings") || (passed(&rest, " - ") && all(&rest, letter) < 1) || !number(&rest, ": rank ", &rank) ||
        !number(&rest, " nranks ", &nranks) || !passed(&rest, " total "))
        return none();
    const char *const seconds = rest.at;
    if (all(&rest, digit) < 1) return none();
    if (passed(&rest, ".") && all(&rest, digit) < 1) return none();
    const Py_ssize_t length = rest.at - seconds;
    if (!passed(&rest, " (")) return none();
    const char *const close = memchr(rest.at, ')', rest.end - rest.at);
    if (close == NULL) return none();
    PyObject *parts = PyUnicode_DecodeUTF8(rest.at, close - rest.at, "replace");
    return parts == NULL ? NULL : Py_BuildValue("LLy#N", rank, nranks, seconds, length, parts);
}

const char present_doc[] =
    "present(text, wanted)\n\n"
    "Those of the wanted bytes that stand in the text, in their order, and \\xff for any that is not ASCII.";

#define WANTED 12 /* bytes that are looked for at once */

/* Does any of the bytes stand in the text, or one that is not ASCII? In a form that compilers turn into vectors. */
static int any_of(const unsigned char *text, Py_ssize_t size, const unsigned char *wanted) {
    unsigned char high = 0, found = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        unsigned char same = 0;
        for (int n = 0; n < WANTED; n++) same |= text[at] == wanted[n];
        found |= same;
        high |= text[at];
    }
    return found || (high & 0x80);
}

PyObject *present(PyObject *module, PyObject *args) {
    const char *text, *wanted;
    Py_ssize_t size, several, count = 0;
    char found[WANTED + 1];
    unsigned char all[WANTED];
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y#:present", &text, &size, &wanted, &several)) return NULL;
    if (several < 1 || several > WANTED) {
        PyErr_SetString(PyExc_ValueError, "1 to 12 wanted bytes");
        return NULL;
    }
    for (int n = 0; n < WANTED; n++) all[n] = (unsigned char)wanted[n < several ? n : 0];
    if (any_of((const unsigned char *)text, size, all)) {
        unsigned char high = 0;
        for (Py_ssize_t n = 0; n < several; n++)
            if (memchr(text, wanted[n], size) != NULL) found[count++] = wanted[n];
        for (Py_ssize_t at = 0; at < size; at++) high |= (unsigned char)text[at];
        if (high & 0x80) found[count++] = (char)0xff;
    }
    return PyBytes_FromStringAndSize(found, count);
}
