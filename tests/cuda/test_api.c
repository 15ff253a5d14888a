/* Declarations of the driver API that are not CUDA's: a wrong value, or a parameter too many. Where
 * cuda.h is installed the compiler compares them; the program only says whether it did. */
#include "cuda/functions.h"
#include "cuda/values.h"

#include <stdint.h>
#include <stdio.h>

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL /* declares all versions of a function */
#include <cuda.h>

#define uint32_t cuuint32_t
#define uint64_t cuuint64_t
#define CHECK_FUNCTION(name, symbol, parameters)                                                   \
	typedef CUresult name##_fn parameters;                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(symbol), name##_fn), #symbol);
#define CHECK_VALUE(name, value) _Static_assert((int)name == (value), #name);
#define CHECK_SIZE(type, bytes)  _Static_assert(sizeof(type) == (bytes), #type);
CUDA_FUNCTIONS(CHECK_FUNCTION)
CUDA_NEWER_FUNCTIONS(CHECK_FUNCTION)
CUDA_PROGRAM_FUNCTIONS(CHECK_FUNCTION)
CUDA_VALUES(CHECK_VALUE)
CUDA_SIZES(CHECK_SIZE)
#define IS_COMPARED 1
#else
#define IS_COMPARED 0
#endif

int main(void)
{
	puts(IS_COMPARED ? "functions and values are cuda.h's" : "cuda.h is not installed");
	return IS_COMPARED ? 0 : 77;
}
