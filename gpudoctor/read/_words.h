/* What is read from one piece of text alone (_words.c). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern const char present_doc[], communicator_doc[], timings_doc[];
PyObject *present(PyObject *module, PyObject *args);
PyObject *communicator(PyObject *module, PyObject *message);
PyObject *timings(PyObject *module, PyObject *message);
