/* The lines of a chunk told apart, compiled: which are NCCL's and new, which are others' and of a shape not seen before.

   What a line means is decided in gpudoctor.read.nccl_cut and gpudoctor.read.shapes, which hand their sets in and are called
   for what is new; without this module they walk the lines themselves, with the same result at a third of the speed. Only
   bytes objects are read, within their length; what is kept between two calls is a memory (_memory.h) that the caller holds. */

#define _GNU_SOURCE /* memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "_memory.h"
#include "_words.h"

#define SHAPE 1024 /* bytes of the longest line whose shape is compared here */

static const char CHOSE[] = " Bytes -> ", MARK[] = "NCCL ", INFO[] = "NCCL INFO ", VIA[] = " via ", WARNS[] = "NCCL WARN ";
#define LEN(word) (sizeof(word) - 1)
#define NUMBERED 10 /* bytes of `Channel 00` */
#define WORD 5      /* by so many first bytes of a message its reader is found */
#define SHORT 33    /* a line that a terminal broke off another is shorter */

typedef struct {
    Memory *memory;
    PyObject *cuts, *told, *fellows, *quiet, *silent, *asked, *naming, *dull, *dull_numbered, *thread, *fresh, *heard, *run_into;
    Py_ssize_t added;
} Handed;

static int contains(PyObject *set, const char *from, Py_ssize_t length) {
    PyObject *key = PyBytes_FromStringAndSize(from, length);
    if (key == NULL) return -1;
    int found = PySet_Contains(set, key);
    Py_DECREF(key);
    return found;
}

/* Was a line seen that differs from this one in digits only, and in which nothing can begin? -1: an error. */
static int seen_shape(const Handed *handed, const char *line, Py_ssize_t length) {
    char shape[SHAPE];
    Py_ssize_t letters = 0;
    if (length > SHAPE) return 0;
    for (Py_ssize_t at = 0; at < length; at++) {
        shape[letters] = line[at];
        letters += (unsigned char)(line[at] - '0') > 9;
    }
    int found = contains(handed->dull, shape, letters);
    if (found != 0 || PySet_Size(handed->dull_numbered) == 0) return found;
    for (Py_ssize_t at = 0; at < length; at++) shape[at] = (unsigned char)(line[at] - '0') > 9 ? line[at] : '0';
    return contains(handed->dull_numbered, shape, length);
}

/* What the process says of connections from here on is of another communicator. */
static int forget(const Handed *handed, PyObject *head) {
    PyObject *fellows = PyDict_GetItemWithError(handed->fellows, head);
    if (fellows == NULL) return PyErr_Occurred() ? -1 : 0;
    if (!PyList_Check(fellows)) {
        PyErr_SetString(PyExc_TypeError, "fellows must be lists");
        return -1;
    }
    for (Py_ssize_t at = 0; at < PyList_Size(fellows); at++) {
        PyObject *told = PyList_GetItem(fellows, at);
        if (told == NULL) return -1;
        Py_INCREF(told); /* whatever goes with what is in it */
        const int status = PySet_Clear(told);
        Py_DECREF(told);
        if (status < 0) return -1;
    }
    if (handed->memory != NULL) forget_told(handed->memory, fellows);
    return 0;
}

/* The sets in which the first bytes of a message are. NULL: an error. */
static const Kind *kind_of(const Handed *handed, const char *message, Py_ssize_t word, Kind *shorter) {
    uint64_t letters = 0;
    memcpy(&letters, message, word);
    const int kept = word == WORD && handed->memory != NULL;
    Kind *kind = kept ? &handed->memory->kinds[mixed(letters, 0) & (WORDS - 1)] : shorter;
    if (kept && kind->known && kind->letters == letters) return kind;
    kind->known = 0;
    kind->letters = letters;
    if ((kind->quiet = contains(handed->quiet, message, word)) < 0 || (kind->silent = contains(handed->silent, message, word)) < 0 ||
        (kind->asked = contains(handed->asked, message, word)) < 0 || (kind->naming = contains(handed->naming, message, word)) < 0)
        return NULL;
    kind->known = 1;
    return kind;
}

/* A thread whose lines are known in the sets handed in, to be remembered. -1: an error. */
static int meet(const Handed *handed, uint64_t hash, PyObject *head, PyObject *told, Thread **thread) {
    if (handed->memory == NULL) return 0;
    PyObject *fellows = PyDict_GetItemWithError(handed->fellows, head);
    if (fellows == NULL) return PyErr_Occurred() ? -1 : 0;
    *thread = new_thread(handed->memory, hash, head, told, fellows);
    return 0;
}

/* One line of NCCL's of level INFO, whose mark stands at `mark`; `end` is its line end.
   others: another writer's words may stand before that. -1: an error. */
static int of_nccl(Handed *handed, const char *line, const char *mark, const char *end, Py_ssize_t number, int others) {
    const char *message = mark + LEN(INFO);
    const Py_ssize_t length = end - message, before = mark - line;
    const Py_ssize_t word = length < WORD ? length : WORD, skipped = length < NUMBERED ? length : NUMBERED;
    PyObject *head, *tail = NULL, *rest = NULL, *result = NULL, *told;
    Kind shorter;
    int status = -1, yes;

    const uint64_t hash = handed->memory != NULL ? hash_of(line, before, 0) : 0;
    Thread *thread = handed->memory != NULL ? thread_of(handed->memory, line, before, hash) : NULL;
    if (thread != NULL) {
        if (was_told(handed->memory, thread, message + skipped, length - skipped)) return 0;
        head = thread->head;
        told = thread->told; /* what is called below may forget them */
        Py_INCREF(head);
        Py_INCREF(told);
    } else {
        head = PyBytes_FromStringAndSize(line, before);
        if (head == NULL) return -1;
        told = PyDict_GetItemWithError(handed->told, head);
        Py_XINCREF(told);
        if (told == NULL ? PyErr_Occurred() != NULL : meet(handed, hash, head, told, &thread) < 0) goto done;
    }
    rest = PyBytes_FromStringAndSize(message + skipped, length - skipped);
    if (rest == NULL) goto done;
    if (told != NULL && (yes = PySet_Contains(told, rest)) != 0) {
        if (yes > 0 && thread != NULL) remember_told(handed->memory, thread, rest);
        status = yes < 0 ? -1 : 0;
        goto done;
    }
    const Kind *kind = kind_of(handed, message, word, &shorter);
    if (kind == NULL) goto done;
    const int runs_together = memmem(message, length, WARNS, LEN(WARNS)) != NULL;
    if (kind->quiet) {
        yes = !kind->silent || runs_together;
        if (yes) {
            tail = PyBytes_FromStringAndSize(message, length);
            if (tail == NULL) goto done;
            result = PyObject_CallFunctionObjArgs(handed->heard, head, tail, NULL);
            if (result == NULL || (yes = PyObject_IsTrue(result)) < 0) goto done;
            Py_CLEAR(result);
        }
        if (!yes) {
            status = others ? PyList_Append(handed->run_into, head) : 0;
            goto done;
        }
    }
    const int broken = length > 1 && memchr(message, '\r', length - 1) != NULL; /* a progress bar ran into it */
    const int counts = word > 0 && message[0] >= '0' && message[0] <= '9' && memmem(message, length, CHOSE, LEN(CHOSE)) != NULL;
    const int asks = runs_together || broken || counts || kind->asked;
    if (asks && (runs_together || word < WORD || broken || memcmp(message, "Chann", WORD) != 0 ||
                 memmem(message, length, VIA, LEN(VIA)) == NULL)) {
        PyObject *place = PyLong_FromSsize_t(number);
        if (tail == NULL) tail = PyBytes_FromStringAndSize(message, length);
        if (tail != NULL && place != NULL)
            result = PyObject_CallFunctionObjArgs(handed->fresh, handed->cuts, told == NULL ? Py_None : told, head, tail, place, NULL);
        Py_XDECREF(place);
        if (broken && handed->memory != NULL) forget_every_told(handed->memory); /* there may be several messages in it, of any process */
        status = result == NULL ? -1 : 0;
        goto done;
    }
    if (told == NULL) {
        told = PyObject_CallFunctionObjArgs(handed->thread, head, NULL);
        if (told == NULL) goto done;
    }
    if (asks) { /* the line of a connection */
        if (PySet_Add(told, rest) < 0) goto done;
        if (thread != NULL) remember_told(handed->memory, thread, rest);
        handed->added++;
    } else if (kind->naming && forget(handed, head) < 0) goto done;
    result = Py_BuildValue("(Oy#n)", head, message, length + 1, number); /* with its line end */
    status = result == NULL ? -1 : PyList_Append(handed->cuts, result);
done:
    Py_XDECREF(result);
    Py_XDECREF(rest);
    Py_XDECREF(tail);
    Py_XDECREF(told);
    Py_DECREF(head);
    return status;
}

/* Where NCCL's name stands next: letter by letter, for a line is too short for a search that makes a table first. */
static const char *mark_in(const char *from, const char *stop) {
    while (stop - from >= (Py_ssize_t)LEN(MARK)) {
        from = memchr(from, MARK[0], stop - from - LEN(MARK) + 1);
        if (from == NULL || memcmp(from, MARK, LEN(MARK)) == 0) return from;
        from++;
    }
    return NULL;
}

static int append(PyObject *list, PyObject *item) {
    const int status = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return status;
}

static const char MEMORY[] = "gpudoctor.read._lines.memory";

static void free_memory(PyObject *capsule) {
    Memory *memory = PyCapsule_GetPointer(capsule, MEMORY);
    if (memory == NULL) return;
    forget_all(memory);
    PyMem_Free(memory);
}

PyDoc_STRVAR(memory_doc, "memory()\n\nWhat walk() remembers from one text to the next.");

static PyObject *new_memory(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    Memory *memory = PyMem_Calloc(1, sizeof(Memory)); /* touched only where it is used */
    if (memory == NULL) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(memory, MEMORY, free_memory);
    if (capsule == NULL) PyMem_Free(memory);
    return capsule;
}

PyDoc_STRVAR(forget_doc, "forget(memory)\n\nThe sets are others now, or what is in them was taken out.");

static PyObject *forget_memory(PyObject *module, PyObject *capsule) {
    (void)module;
    Memory *memory = PyCapsule_GetPointer(capsule, MEMORY);
    if (memory == NULL) return NULL;
    forget_all(memory);
    Py_INCREF(Py_None);
    return Py_None;
}

PyDoc_STRVAR(walk_doc,
"walk(memory, text, look_for_broken, cuts, told, fellows, quiet, silent, asked, naming, dull, dull_numbered, thread, fresh, heard,"
" run_into, long_head)\n\n"
"Every line of a text of whole lines once: (others, numbers, places, lines, added).\n"
"others: lines that are not NCCL's of level INFO and of no shape in the sets; their numbers from 0, and where each begins;\n"
"others is None, and the rest is of the lines before, where a terminal may have broken one.\n"
"added: to the sets of what was told.\n"
"memory: made by memory() for these sets, and told by forget() where others than this function change them; or None.");

static PyObject *walk(PyObject *module, PyObject *args) {
    Handed handed;
    PyObject *capsule;
    const char *text;
    Py_ssize_t size, long_head, number = 0;
    int look_for_broken, broken = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy#pO!O!O!O!O!O!O!O!O!OOOO!n:walk", &capsule, &text, &size, &look_for_broken, &PyList_Type, &handed.cuts,
                          &PyDict_Type, &handed.told, &PyDict_Type, &handed.fellows, &PyFrozenSet_Type, &handed.quiet,
                          &PyFrozenSet_Type, &handed.silent, &PyFrozenSet_Type, &handed.asked, &PyFrozenSet_Type, &handed.naming,
                          &PySet_Type, &handed.dull, &PySet_Type, &handed.dull_numbered, &handed.thread, &handed.fresh,
                          &handed.heard, &PyList_Type, &handed.run_into, &long_head))
        return NULL;
    handed.memory = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, MEMORY);
    if (handed.memory == NULL && PyErr_Occurred()) return NULL;
    handed.added = 0;
    PyObject *others = PyList_New(0), *numbers = PyList_New(0), *places = PyList_New(0), *found = NULL;
    if (others == NULL || numbers == NULL || places == NULL) goto done;

    const char *const stop = text + size, *line = text, *before = NULL;
    const char *mark = mark_in(text, stop); /* the next one from here on */
    while (line < stop) {
        const char *end = memchr(line, '\n', stop - line);
        if (end == NULL) break; /* whole lines only */
        const char *info = NULL;
        int named = 0;
        if (mark != NULL && mark < line) mark = mark_in(line, stop);
        if (mark != NULL && mark < end) {
            named = 1;
            info = end - mark >= (Py_ssize_t)LEN(INFO) && memcmp(mark, INFO, LEN(INFO)) == 0 ? mark : memmem(mark, end - mark, INFO, LEN(INFO));
        }
        if (info != NULL) {
            if (of_nccl(&handed, line, info, end, number, info != mark || info - line > long_head) < 0) goto done;
        } else {
            if (look_for_broken && end - line < SHORT && before != NULL && memmem(before, line - before, VIA, LEN(VIA)) != NULL) {
                broken = 1;
                break;
            }
            const int seen = named ? 0 : seen_shape(&handed, line, end - line);
            if (seen < 0) goto done;
            if (!seen && (append(others, PyBytes_FromStringAndSize(line, end - line)) < 0 ||
                          append(numbers, PyLong_FromSsize_t(number)) < 0 || append(places, PyLong_FromSsize_t(line - text)) < 0))
                goto done;
        }
        before = line;
        line = end + 1;
        number++;
    }
    found = Py_BuildValue("(OOOnn)", broken ? Py_None : others, numbers, places, number, handed.added);
done:
    Py_XDECREF(others);
    Py_XDECREF(numbers);
    Py_XDECREF(places);
    return found;
}

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS, walk_doc}, {"memory", new_memory, METH_NOARGS, memory_doc}, {"forget", forget_memory, METH_O, forget_doc},
    {"present", present, METH_VARARGS, present_doc}, {"communicator", communicator, METH_O, communicator_doc},
    {"timings", timings, METH_O, timings_doc}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_lines", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__lines(void) { return PyModuleDef_Init(&definition); }
