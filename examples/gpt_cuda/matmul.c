/* Finds cuBLAS at run time, so that the program builds and runs without it. */
#include "examples/gpt_cuda/matmul.h"

#include "examples/gpt_cuda/cublas.h"
#include "examples/gpt_cuda/stream.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cublasContext *cublasHandle_t;
typedef unsigned cublasStatus_t, cublasOperation_t, cublasMath_t;
#define VALUE(name, value) name = value,
enum { CUBLAS_VALUES(VALUE) };
#undef VALUE

static struct {
#define MEMBER(name, symbol, parameters) cublasStatus_t(*name) parameters;
	CUBLAS_FUNCTIONS(MEMBER)
#undef MEMBER
	cublasHandle_t handle;
	bool is_used; /* else plain */
} cublas;

static void *matmul_open_library(void)
{
	static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* Returns NULL, or why there is none. */
static const char *open_cublas(void)
{
	static char why[200];
	void *library, *symbol;

	if (cublas.handle)
		return NULL;
	library = matmul_open_library();
	if (!library)
		return "neither libcublas.so.13 nor libcublas.so.12 can be loaded";
#define FIND(name, function, parameters)                                                           \
	symbol = dlsym(library, #function);                                                        \
	memcpy(&cublas.name, &symbol, sizeof symbol);                                              \
	if (!symbol)                                                                               \
		return "the library has no " #function;
	CUBLAS_FUNCTIONS(FIND)
#undef FIND
	cublasStatus_t status = cublas.create(&cublas.handle);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublas.set_stream(cublas.handle, stream_handle());
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublas.set_math_mode(cublas.handle, CUBLAS_DEFAULT_MATH);
	snprintf(why, sizeof why, "making its handle fails with status %u", status);
	return status == CUBLAS_STATUS_SUCCESS ? NULL : why;
}

int matmul_open(const char *how)
{
	if (how && strcmp(how, "cublas") != 0 && strcmp(how, "plain") != 0) {
		fprintf(stderr, "gpt_cuda: --matmul %s is neither cublas nor plain\n", how);
		return -1;
	}
	bool is_plain = how && strcmp(how, "plain") == 0;
	const char *why = is_plain ? NULL : open_cublas();
	cublas.is_used = !is_plain && !why;
	if (!why)
		return 0;
	fprintf(stderr, "gpt_cuda: no cuBLAS: %s%s\n", why,
		how ? "" : "; matrices are multiplied by kernels of this program (--matmul plain)");
	return how ? -1 : 0;
}

/* cuBLAS has columns one behind the other, where we have rows: each matrix is the transposed one to
 * it, and so it multiplies b by a. */
static void multiply_by_cublas(const struct matmul *m)
{
	const float beta = m->add ? 1 : 0;
	cublasStatus_t status = cublas.sgemm_strided_batched(
		cublas.handle, m->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
		m->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, m->cols, m->rows, m->inner, &m->alpha,
		m->b, m->b_stride, m->b_batch, m->a, m->a_stride, m->a_batch, &beta, m->c,
		m->c_stride, m->c_batch, m->batches);

	if (status == CUBLAS_STATUS_SUCCESS)
		return;
	fprintf(stderr, "gpt_cuda: cublasSgemmStridedBatched failed with status %u\n", status);
	exit(1);
}

static uint64_t matmul_tiles(int count)
{
	return ((uint64_t)count + 15) / 16;
}

void matmul(const struct matmul *m)
{
	if (m->rows == 0 || m->cols == 0 || m->inner == 0)
		return; /* of a rank without sequences; inner is 0 for its gradients only, which add
			 */
	if (cublas.is_used) {
		multiply_by_cublas(m);
		return;
	}
	LAUNCH(gpt_matmul, (uint64_t)m->batches * matmul_tiles(m->rows) * matmul_tiles(m->cols),
	       .c = m->c, .a = m->a, .b = m->b, .a_batch = m->a_batch, .b_batch = m->b_batch,
	       .c_batch = m->c_batch, .rows = m->rows, .inner = m->inner, .cols = m->cols,
	       .batches = m->batches, .a_row = m->a_transposed ? 1 : m->a_stride,
	       .a_col = m->a_transposed ? m->a_stride : 1,
	       .b_row = m->b_transposed ? 1 : m->b_stride,
	       .b_col = m->b_transposed ? m->b_stride : 1, .c_row = m->c_stride, .add = m->add,
	       .alpha = m->alpha);
}
