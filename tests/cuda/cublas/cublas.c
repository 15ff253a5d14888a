/* libcublas.so.13, made of the driver of tests/cuda/driver: its products are kernels there
 * (fake_gemm). It refuses what cuBLAS refuses, and rounds to TF32 where it was told that it may. */
#include "examples/gpt_cuda/cublas.h"
#include "tests/cuda/driver/driver.h"
#include "tests/cuda/driver/own_kernels.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum { CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
#define VALUE(name, value) name = value,
enum { CUBLAS_VALUES(VALUE) };
#undef VALUE

typedef struct cublasContext {
	CUstream stream;
	CUlibrary library;
	CUfunction gemm;
	unsigned mode;
} * cublasHandle_t;
typedef unsigned cublasStatus_t, cublasOperation_t, cublasMath_t;

#define DECLARE(name, symbol, parameters) EXPORT cublasStatus_t symbol parameters;
CUBLAS_FUNCTIONS(DECLARE)
#undef DECLARE

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
	CUkernel kernel;

	*handle = calloc(1, sizeof **handle);
	if (cuLibraryLoadData(&(*handle)->library, "", NULL, NULL, 0, NULL, NULL, 0) ==
		    CUDA_SUCCESS &&
	    cuLibraryGetKernel(&kernel, (*handle)->library, "fake_gemm") == CUDA_SUCCESS &&
	    cuKernelGetFunction(&(*handle)->gemm, kernel) == CUDA_SUCCESS)
		return CUBLAS_STATUS_SUCCESS;
	free(*handle);
	*handle = NULL;
	return CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
	handle->stream = stream;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
	handle->mode = mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t a_op,
					 cublasOperation_t b_op, int rows, int cols, int inner,
					 const float *alpha, const float *a, int a_stride,
					 long long a_batch, const float *b, int b_stride,
					 long long b_batch, const float *beta, float *c,
					 int c_stride, long long c_batch, int batches)
{
	struct fake_gemm_args args = {a,
				      b,
				      c,
				      a_batch,
				      b_batch,
				      c_batch,
				      rows,
				      cols,
				      inner,
				      batches,
				      a_stride,
				      b_stride,
				      c_stride,
				      a_op == CUBLAS_OP_T,
				      b_op == CUBLAS_OP_T,
				      handle->mode == CUBLAS_TF32_TENSOR_OP_MATH,
				      *alpha,
				      *beta};
	void *parameters[] = {&args};
	int a_least = a_op == CUBLAS_OP_T ? inner : rows,
	    b_least = b_op == CUBLAS_OP_T ? cols : inner;

	if (rows < 0 || cols < 0 || inner < 0 || batches < 0 || a_stride < a_least ||
	    a_stride < 1 || b_stride < b_least || b_stride < 1 || c_stride < rows || c_stride < 1)
		return CUBLAS_STATUS_INVALID_VALUE;
	return cuLaunchKernel(handle->gemm, 4, 1, 1, FAKE_GEMM_THREADS, 1, 1, 0, handle->stream,
			      parameters, NULL) == CUDA_SUCCESS
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_EXECUTION_FAILED;
}
