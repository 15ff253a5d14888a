/* What would break: calls of cuBLAS with other parameters or values than it has. Where its headers
 * are installed the compiler compares them; the program only says whether it did. */
#include "examples/gpt_cuda/cublas.h"

#include <stdio.h>

#if __has_include(<cublas_v2.h>) && __has_include(<cuda.h>)
#include <cublas_v2.h>
#include <cuda.h>

#define CHECK_FUNCTION(name, symbol, parameters)                                                   \
	typedef cublasStatus_t name##_fn parameters;                                               \
	_Static_assert(__builtin_types_compatible_p(__typeof__(symbol), name##_fn), #symbol);
#define CHECK_VALUE(name, value) _Static_assert((int)name == (value), #name);
CUBLAS_FUNCTIONS(CHECK_FUNCTION)
CUBLAS_VALUES(CHECK_VALUE)
_Static_assert(sizeof(cublasStatus_t) == sizeof(unsigned), "matmul.c has it as a number");
#define IS_COMPARED 1
#else
#define IS_COMPARED 0
#endif

int main(void)
{
	puts(IS_COMPARED ? "functions and values are cuBLAS's" : "cublas_v2.h is not installed");
	return IS_COMPARED ? 0 : 77;
}
