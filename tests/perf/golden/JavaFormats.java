import java.text.*; import java.util.*;
/** Writes java_formats.tsv: java JavaFormats.java | grep -v ^E (JDK 17). */
public class JavaFormats { public static void main(String[] a) {
 String[] p={"yyyy-MM-dd HH:mm:ss:SSS","G GGGG y yy yyy yyyy yyyyyy","M MM MMM MMMM L LL LLL LLLL","w ww W D DDD d dd F","E EEE EEEE u a","H HH k kk K KK h hh m mm s ss S SS SSS SSSS","Z X XX XXX","Y YY YYYY ww","'at' HH 'o''clock' ''yy''","dd/MM/yy, h:mm a z"};
 long[] t={1795177423430L,0L,1735603200001L,951782399999L,1704067199999L,1798761600000L};
 String[] z={"UTC","America/New_York","Asia/Kolkata"};
 for(String zz:z) for(long tt:t) for(String pp:p){ SimpleDateFormat f=new SimpleDateFormat(pp, Locale.ENGLISH); f.setTimeZone(TimeZone.getTimeZone(zz)); System.out.println(zz+"\t"+tt+"\t"+pp+"\t"+f.format(new Date(tt)));}
 double[] d={0.00015,0.00005,1.00005,2.00015,123456.78905,0.12345,1e-9,1e15,1.23456789012E10,98570.72445,71658.90355,1.0/3,2.0/3,1e22,Double.POSITIVE_INFINITY,Double.NaN, 5e-324, 1.7976931348623157E308};
 for(double v:d) System.out.println("F\t"+v+"\t"+String.format(Locale.ENGLISH,"%.4f",v));
 for(String pp:new String[]{"b","'x","XXXX","zzzz","n"}) try{System.out.println("E\t"+pp+"\t"+new SimpleDateFormat(pp,Locale.ENGLISH).format(new Date(0)));}catch(Exception e){System.out.println("E\t"+pp+"\t"+e.getMessage());}
}}
