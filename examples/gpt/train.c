/* The training loop: batches, steps and what is said of them. */
#include "pipeline.h"
#include "regroup.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double train_seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* This rank's sequences [first, last) of the step's batch, and of each its tokens. */
static int load_batch(struct run *run, int step)
{
	const struct options *o = &run->options;
	int first = (int)((int64_t)o->batch * run->part / run->parts);
	int last = (int)((int64_t)o->batch * (run->part + 1) / run->parts);
	size_t places = run->text.count - (size_t)o->length;
	int length = gpt_length(&run->gpt);

	for (int i = first; i < last; i++) {
		size_t begin = tutti_random(o->seed, (uint64_t)step, 0, (uint64_t)i) % places;
		for (int t = 0; t < length; t++) {
			size_t at = begin + (size_t)gpt_position(&run->gpt, t);
			run->tokens[(i - first) * length + t] = run->text.tokens[at];
			run->targets[(i - first) * length + t] = run->text.tokens[at + 1];
		}
	}
	return last - first;
}

/* Rises for 20 steps, then falls to nothing along a half cosine. */
static float learning_rate(const struct options *o, int step)
{
	float done = (float)step / (float)o->steps;
	float rise = step < 20 ? (float)(step + 1) / 20 : 1;

	return (float)o->lr * rise * (0.5f + 0.5f * cosf(3.14159265f * done));
}

/* All micro-batches of a step: returns the number of this rank's characters. */
static double pass_all(struct run *run, int step)
{
	const struct options *o = &run->options;
	int64_t sequences = load_batch(run, step), parts = o->micro_batches;
	int length = gpt_length(&run->gpt);
	double items = 0;

	if (run->stages) {
		items = (double)(sequences * length);
		must(tutti_micro_batch(run->trainer, TUTTI_PASS_LAST, items, NULL));
		stages_run(run->stages, (int)sequences);
		return items;
	}
	for (int m = 0; m < parts; m++) {
		int first = (int)(sequences * m / parts);
		int last = (int)(sequences * (m + 1) / parts);
		size_t row = (size_t)first * (size_t)length;
		double part = (double)(last - first) * length;
		must(tutti_micro_batch(run->trainer,
				       m + 1 < parts ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
				       part, NULL));
		gpt_forward(&run->gpt, run->tokens + row, last - first);
		gpt_loss(&run->gpt, run->targets + row, 1);
		gpt_backward(&run->gpt);
		items += part;
	}
	return items;
}

void log_start(struct run *run)
{
	tutti_metrics_destroy(run->metrics);
	run->metrics = NULL;
	if (!run->options.log)
		return;
	must(tutti_metrics_create(&run->metrics, run->ranks,
				  &(tutti_metrics_config){.dir = run->options.log}));
	run->loss_metric =
		must_index(tutti_metrics_declare(run->metrics, "loss", TUTTI_METRIC_MEAN));
	run->norm_metric =
		must_index(tutti_metrics_declare(run->metrics, "grad_norm", TUTTI_METRIC_LAST));
	run->rate_metric =
		must_index(tutti_metrics_declare(run->metrics, "learning_rate", TUTTI_METRIC_LAST));
}

static void log_step(struct run *run, int step, double loss, double items, double norm, double rate)
{
	if (!run->metrics)
		return;
	must(tutti_metrics_add(run->metrics, run->loss_metric, loss, items));
	must(tutti_metrics_add(run->metrics, run->norm_metric, norm, 1));
	must(tutti_metrics_add(run->metrics, run->rate_metric, rate, 1));
	must(tutti_metrics_step(run->metrics, step));
}

int run_has_head(const struct run *run)
{
	return tutti_mesh_coord(run->mesh, "pp") + 1 == tutti_mesh_size(run->mesh, "pp");
}

/* Returns the mean loss of the global batch. */
static double train_step(struct run *run, int step)
{
	const struct options *o = &run->options;
	const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				       .lr = learning_rate(o, step),
				       .beta1 = 0.9f,
				       .beta2 = 0.99f,
				       .eps = 1e-8f,
				       .weight_decay = 0.1f};
	tutti_step_info info;
	double mean, items = pass_all(run, step);

	must(tutti_step(run->trainer, &adamw, 1, &info));
	double loss = gpt_loss_sum(&run->gpt); /* waits for a GPU's update */
	if (!run_has_head(run))                /* the last stage's counts */
		items = 0;
	if (info.skipped && run->rank == 0)
		printf("%s\n", tutti_comm_error(NULL));
	run->done = step + 1;
	must(tutti_means(run->trainer, &loss, &items, &mean, 1));
	log_step(run, step, loss, items, (double)info.grad_norm, (double)adamw.lr);
	if (o->save && (run->done % o->save_every == 0 || run->done == o->steps))
		must(tutti_save(run->trainer, o->save, run->done));
	return mean;
}

static double train_waited(const struct run *run)
{
	tutti_train_stats stats;
	must(tutti_trainer_stats(run->trainer, &stats));
	return stats.exposed_seconds;
}

void train(struct run *run)
{
	const struct options *o = &run->options;
	double since = train_seconds_now(), waited_since = train_waited(run);
	int reported = (int)run->done - 1;

	for (int step = (int)run->done; step < o->steps; step++) {
		tell_spares(run, false);
		double loss = train_step(run, step);
		if (run->losses)
			fprintf(run->losses, "%d %.9f\n", step, loss);
		if (step % o->report_every != 0 && step + 1 != o->steps)
			continue;
		double now = train_seconds_now(), waited_now = train_waited(run);
		double tokens = (double)(step - reported) * o->batch * o->length;
		if (run->rank == 0)
			printf("step %4d   loss %.4f   %6.0f tokens/s   %4.1f %% waiting for "
			       "ranks\n",
			       step, loss, tokens / (now - since),
			       100 * (waited_now - waited_since) / (now - since));
		fflush(stdout);
		since = now;
		waited_since = waited_now;
		reported = step;
	}
}
