/* cuBLAS, as much as matmul.c calls: X(name, symbol, parameters), in our own declarations, as cuda/functions.h.
 * tests/cuda/test_cublas_api.c compares them with CUDA's headers. */
#ifndef EXAMPLES_GPT_CUDA_CUBLAS_H
#define EXAMPLES_GPT_CUDA_CUBLAS_H

#define CUBLAS_FUNCTIONS(X)                                                                        \
	X(create, cublasCreate_v2, (cublasHandle_t * handle))                                      \
	X(set_stream, cublasSetStream_v2, (cublasHandle_t handle, CUstream stream))                \
	X(set_math_mode, cublasSetMathMode, (cublasHandle_t handle, cublasMath_t mode))            \
	X(sgemm_strided_batched, cublasSgemmStridedBatched,                                        \
	  (cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int rows,        \
	   int cols, int inner, const float *alpha, const float *a, int a_stride,                  \
	   long long a_batch, const float *b, int b_stride, long long b_batch, const float *beta,  \
	   float *c, int c_stride, long long c_batch, int batches))

/* The default mode computes with at least the bits of f32: no TF32, and no emulation by smaller types. */
#define CUBLAS_VALUES(X)                                                                           \
	X(CUBLAS_STATUS_SUCCESS, 0)                                                                \
	X(CUBLAS_OP_N, 0)                                                                          \
	X(CUBLAS_OP_T, 1)                                                                          \
	X(CUBLAS_DEFAULT_MATH, 0)

#endif
