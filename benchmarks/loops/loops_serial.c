/* The loops of ``offload bench loops --section speculation`` as a serial C programmer writes them.
 *
 * Compiled by gcc -O3 -march=native -shared -fPIC, run on one core. Arguments are those of the loop functions, in their
 * order, pointers for arrays; last come the numbers that Python takes from the arrays: n iterations.
 */
#include <math.h>
#include <stdint.h>

void multiply(const int32_t *order, const int32_t *pointers, const int32_t *columns, const double *restrict values,
              const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int32_t k = pointers[i]; k < pointers[i + 1]; k++)
            s += values[k] * x[columns[k]];
        y[order[i]] = s;
    }
}

void add(double a, const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

void renew(double a, const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + a * y[i];
}

double dot(const double *x, const double *y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

void flux(const int32_t (*edges)[2], const double *area, const double *restrict u, double *restrict residual,
          int64_t begin, int64_t end, int64_t n)
{
    (void)n;
    for (int64_t k = begin; k < end; k++) {
        int32_t left = edges[k][0], right = edges[k][1];
        double a = u[left], b = u[right], f = 0.5 * area[k] * (a * a + b * b - fabs(a + b) * (b - a));
        residual[left] -= f;
        residual[right] += f;
    }
}

void push(const int32_t *slots, double (*restrict position)[3], double (*restrict velocity)[3], double dt, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t k = slots[i];
        for (int c = 0; c < 3; c++) {
            velocity[k][c] = 0.999 * velocity[k][c];
            position[k][c] += dt * velocity[k][c];
        }
    }
}

void work(const int32_t *source, const int32_t *goal, const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double t = x[source[i]];
        for (int k = 0; k < 100; k++)
            t = t * 0.999 + 0.001;
        y[goal[i]] = t;
    }
}

static void eliminate(const double *restrict lower, const double *restrict diagonal, const double *restrict upper,
                      double *restrict scratch, double *restrict right, int32_t n)
{
    scratch[0] = upper[0] / diagonal[0];
    right[0] /= diagonal[0];
    for (int32_t k = 1; k < n; k++) {
        double m = 1 / (diagonal[k] - lower[k] * scratch[k - 1]);
        scratch[k] = upper[k] * m;
        right[k] = (right[k] - lower[k] * right[k - 1]) * m;
    }
    for (int32_t k = n - 2; k >= 0; k--)
        right[k] -= scratch[k] * right[k + 1];
}

void lines(const int32_t *offsets, const int32_t *lengths, const double *lower, const double *diagonal,
           const double *upper, double *scratch, double *right, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t first = offsets[i];
        eliminate(lower + first, diagonal + first, upper + first, scratch + first, right + first, lengths[i]);
    }
}

void scale(const int32_t *pointers, const double *factors, double *restrict values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int32_t k = pointers[i]; k < pointers[i + 1]; k++)
            values[k] *= factors[i];
}

void recurrence(const int32_t *here, const int32_t *before, const double *restrict x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[here[i]] = 0.9 * y[before[i]] + x[i];
}

void update(const int32_t *p, const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[p[i]] = 0.5 * y[p[i]] + x[i];
}

void running_sum(const double *restrict x, double *restrict y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i];
        y[i] = s;
    }
}

void running_count(const int64_t *restrict x, int64_t *restrict y, int64_t n)
{
    int64_t s = 0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i];
        y[i] = s;
    }
}

void smoothed(const double *restrict x, double *restrict y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        s = 0.5 * (s + x[i]);
        y[i] = s;
    }
}
