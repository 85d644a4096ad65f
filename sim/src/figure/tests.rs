//! Figures of ordinary and of odd data: the same text each time, nothing that cannot be drawn, no overlap.

use super::*;

fn points(of: impl Fn(f64) -> f64) -> Vec<Point> {
    (0..12).map(|i| Point { x: f64::from(i), y: of(f64::from(i)), spread: Some(0.4) }).collect()
}

fn panel(title: &str, count: u32) -> Panel {
    let series = (0..count).map(|i| Series {
        name: format!("series {i}"),
        points: points(|x| (x + 2.0 * f64::from(i)) * (1.0 + 0.1 * f64::from(i))),
    });
    let line = |at: f64, label: &str, dashed| Line { at, label: label.to_owned(), dashed };
    let lines =
        vec![line(3.0, "Theorem 1", false), line(3.2, "Theorem 2", true), line(11.0, "capacity", true)];
    Panel { title: title.to_owned(), series: series.collect(), lines }
}

fn figure(panels: usize, series: u32) -> Figure {
    Figure {
        title: "Misses over load <&\"'> — a title that is long enough to need a second line on a narrow page"
            .to_owned(),
        x: "requests per second".to_owned(),
        y: "misses (%)".to_owned(),
        log_y: false,
        panels: (0..panels).map(|i| panel(&format!("panel {i}"), series)).collect(),
    }
}

fn bars(series: usize) -> Bars {
    let bar = |i: usize, g: usize| Bar { y: (i * 3 + g * 5) as f64 - 4.0, spread: Some(g as f64) };
    Bars {
        title: "Bars".to_owned(),
        y: "share".to_owned(),
        groups: ["bursty arrivals", "periodic", "Poisson"].map(str::to_owned).to_vec(),
        series: (0..series)
            .map(|i| BarSeries { name: format!("scheduler {i}"), bars: (0..3).map(|g| bar(i, g)).collect() })
            .collect(),
    }
}

#[test]
fn the_same_figure_is_the_same_text() {
    assert_eq!(figure(3, 14).svg(), figure(3, 14).svg());
    assert_eq!(bars(9).svg(), bars(9).svg());
}

#[test]
fn a_figure_is_800_pixels_wide_on_white_and_its_text_is_escaped() {
    for svg in [figure(1, 3).svg(), figure(5, 3).svg()] {
        assert!(svg.starts_with("<svg width=\"800\" height=\""), "{}", &svg[..80]);
        assert!(svg.contains("viewBox=\"0 0 1600 ") && svg.trim_end().ends_with("</svg>"));
        let white = svg.lines().nth(1).expect("the background");
        assert!(white.starts_with("<rect x=\"0\" y=\"0\"") && white.contains("fill=\"#FFFFFF\""), "{white}");
        assert!(svg.contains("&lt;&amp;&quot;&apos;&gt;") && !svg.contains("<&"));
    }
}

#[test]
fn every_name_is_in_the_legend_once() {
    let svg = figure(3, 14).svg();
    for i in 0..14 {
        assert_eq!(svg.lines().filter(|line| *line == format!("series {i}")).count(), 1);
    }
}

#[test]
fn odd_values_are_left_out() {
    let odd = [f64::NAN, f64::INFINITY, -f64::INFINITY, f64::MAX, -1e300, 0.0, -0.0, 1e-310, 5.0, 5.0, -2.0];
    for log_y in [false, true] {
        for count in 0..=odd.len() {
            for constant in [None, Some(0.0), Some(7.5), Some(f64::NAN)] {
                let point = |(i, &value): (usize, &f64)| Point {
                    x: constant.unwrap_or(odd[(i * 7) % odd.len()]),
                    y: value,
                    spread: Some(odd[(i * 3) % odd.len()]),
                };
                let points: Vec<Point> = odd[..count].iter().enumerate().map(point).collect();
                let lines = odd.map(|at| Line { at, label: "a label".to_owned(), dashed: at > 0.0 }).to_vec();
                let series = vec![Series { name: "\u{0}<odd>".to_owned(), points: points.clone() }];
                let panels = vec![Panel { title: String::new(), series, lines }, Panel::default()];
                let svg = Figure { log_y, panels, ..Figure::default() }.svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains('\u{0}'));
                let bars = points.iter().map(|point| Bar { y: point.y, spread: point.spread }).collect();
                let series = vec![BarSeries { name: "odd".to_owned(), bars }, BarSeries::default()];
                let svg = Bars { groups: vec!["x".repeat(200); count], series, ..Bars::default() }.svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"));
            }
        }
    }
}

#[test]
fn without_data_there_is_still_a_figure() {
    assert!(Figure::default().svg().contains("no data"));
    assert!(Bars::default().svg().contains("</svg>"));
    let one = Series { name: "one".to_owned(), points: vec![Point::new(4.0, 2.0)] };
    let panels = vec![Panel { series: vec![one], ..Panel::default() }];
    assert!(Figure { panels, ..Figure::default() }.svg().contains("<circle"));
}

#[test]
fn cells_have_the_colours_of_their_names() {
    let cells = Cells {
        title: "Selection".to_owned(),
        x: "slack (ms)".to_owned(),
        width: 2.5,
        y: "requests".to_owned(),
        names: ["small", "large"].map(str::to_owned).to_vec(),
        rows: vec![vec![0, 0, 1, 1, 1], vec![0, 0, 0, 9], vec![]],
    };
    let svg = cells.svg();
    assert_eq!(svg, cells.svg());
    // Cells of one name beside each other are one; each is filled and outlined, and so is the legend's sample.
    let count = |colour: &str| svg.lines().filter(|l| l.starts_with("<rect") && l.contains(colour)).count();
    assert_eq!((count("#0072B2"), count("#D55E00")), (6, 4), "{svg}");
    for text in ["small", "large", "slack (ms)", "requests", "Selection", "3"] {
        assert_eq!(svg.lines().filter(|line| *line == text).count(), 1, "{text}");
    }
    for width in [0.0, f64::NAN, f64::INFINITY, 1e-300] {
        let svg = Cells { width, ..cells.clone() }.svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    assert!(Cells::default().svg().contains("</svg>"));
}
