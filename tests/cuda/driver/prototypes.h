/* The driver API as functions that a program links: the driver of shared memory defines them, and
 * its tests call them. */
#ifndef TESTS_CUDA_PROTOTYPES_H
#define TESTS_CUDA_PROTOTYPES_H

#include "cuda/api.h"

#define CUDA_PROTOTYPE(name, symbol, parameters)                                                   \
	__attribute__((visibility("default"))) CUresult symbol parameters;
CUDA_FUNCTIONS(CUDA_PROTOTYPE)
CUDA_NEWER_FUNCTIONS(CUDA_PROTOTYPE)
CUDA_PROGRAM_FUNCTIONS(CUDA_PROTOTYPE)
#undef CUDA_PROTOTYPE

/* Errors that the library never looks for. */
enum {
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

#endif
