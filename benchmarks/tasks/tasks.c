/* The graphs of `offload bench tasks` in OpenMP: null tasks with the same dependences.
 *
 * cc -O2 -fopenmp tasks.c -o tasks
 * ./tasks GRAPH THREADS
 *
 * GRAPH is a text file: the numbers of tasks and of cells; then, for each task, how many cells it reads (at most 3),
 * those cells, and the one that it updates. One thread generates all tasks and waits for them, THREADS in all run them.
 * This is done twice; printed are the microseconds a task of the second time. `offload bench tasks` compiles and runs it.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_READS = 3 };

struct step {
    int n_reads;
    int reads[MAX_READS];
    int updates;
};

static void generate(const struct step *steps, int n_tasks, char *cells)
{
    for (int t = 0; t < n_tasks; t++) {
        const int *reads = steps[t].reads, updates = steps[t].updates;
        switch (steps[t].n_reads) {
        case 0:
            #pragma omp task depend(inout: cells[updates])
            { }
            break;
        case 1:
            #pragma omp task depend(in: cells[reads[0]]) depend(inout: cells[updates])
            { }
            break;
        case 2:
            #pragma omp task depend(in: cells[reads[0]], cells[reads[1]]) depend(inout: cells[updates])
            { }
            break;
        default:
            #pragma omp task depend(in: cells[reads[0]], cells[reads[1]], cells[reads[2]]) depend(inout: cells[updates])
            { }
        }
    }
    #pragma omp taskwait
}

static int read_number(FILE *file, int least, int most)
{
    int number;
    if (fscanf(file, "%d", &number) != 1 || number < least || number > most) {
        fprintf(stderr, "tasks: the graph is not what the head of tasks.c says\n");
        exit(1);
    }
    return number;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
    int n_threads = argc == 3 ? atoi(argv[2]) : 0;
    if (!file || n_threads < 1) {
        fprintf(stderr, "usage: tasks GRAPH THREADS\n");
        return 1;
    }
    int n_tasks = read_number(file, 1, 100000000), n_cells = read_number(file, 1, 100000000);
    struct step *steps = calloc((size_t)n_tasks, sizeof *steps);
    char *cells = calloc((size_t)n_cells, 1);
    if (!steps || !cells)
        return 1;
    for (int t = 0; t < n_tasks; t++) {
        steps[t].n_reads = read_number(file, 0, MAX_READS);
        for (int r = 0; r < steps[t].n_reads; r++)
            steps[t].reads[r] = read_number(file, 0, n_cells - 1);
        steps[t].updates = read_number(file, 0, n_cells - 1);
    }
    fclose(file);

    double took_s = 0;
    #pragma omp parallel num_threads(n_threads)
    #pragma omp single
    for (int turn = 0; turn < 2; turn++) {
        double began_s = omp_get_wtime();
        generate(steps, n_tasks, cells);
        took_s = omp_get_wtime() - began_s;
    }
    printf("%.6f\n", took_s * 1e6 / n_tasks);
    free(cells);
    free(steps);
    return 0;
}
